"""The columns of the signature `raw` in the form of parsed tf.Examples, which the transform graph reads.

In `raw` every column has shape [batch], one value per example. A value is missing where a text is empty, a float is
NaN, or an integer is the smallest int64. The events of a history have shape [batch, events]; shorter histories are
padded with missing values.

In `matrix`, the columns of a dtype are one tensor [batch, columns], in the order of the request schema. Models that
read at least 100 columns have this signature, because a call with a tensor per column takes much longer than the model.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf

from components.results.request_schema import Column, matrix_columns
from components.trainer.packed_columns import FeatureSpecs, PackedColumns, ParsedColumns, SparseColumn, split_columns
from components.trainer.probe_rows import MISSING_INT

_WIDE = 100
"""Minimum number of columns for the signature `matrix`."""


def raw_specs(features: FeatureSpecs, histories: Collection[str]) -> dict[str, tf.TensorSpec]:
    """Return the inputs of `raw`.

    Args:
      features: The columns.
      histories: The columns with the events of histories.
    """
    return {
        name: tf.TensorSpec([None, None] if name in histories else [None], spec.dtype, name=name)
        for name, spec in features.items()
    }


def matrix_specs(features: FeatureSpecs, columns: Mapping[str, Column]) -> dict[str, tf.TensorSpec] | None:
    """Return the inputs of the signature `matrix`.

    Args:
      features: The columns that the model reads.
      columns: Descriptions of these columns in the request schema.

    Returns:
      dtype → spec [batch, columns]. None for a model that reads few columns, or several values in a column.
    """
    names = matrix_columns(columns)
    is_wide = sum(map(len, names.values())) == len(features) >= _WIDE
    if not is_wide or not all(isinstance(spec, tf.io.VarLenFeature) for spec in features.values()):
        return None
    return {dtype: tf.TensorSpec([None, len(group)], dtype, name=dtype) for dtype, group in names.items()}


def join_columns(tensors: Mapping[str, tf.Tensor], columns: Mapping[str, Column]) -> dict[str, tf.Tensor]:
    """Convert the inputs of `raw` to the inputs of `matrix`; `columns` as for `matrix_specs`."""
    return {
        dtype: tf.stack([tensors[name] for name in names], axis=1) for dtype, names in matrix_columns(columns).items()
    }


def pack_matrices(matrices: Mapping[str, tf.Tensor]) -> PackedColumns:
    """Convert the inputs of `matrix` to packed columns, without a graph node per column."""
    packed: PackedColumns = {}
    for dtype, matrix in matrices.items():
        rows, values, counts, shape = _find_parts(tf.transpose(matrix))
        shapes = tf.tile(shape[tf.newaxis], [matrix.shape[1], 1])
        parts = {"indices": rows, "values": values, "counts": counts, "shapes": shapes}
        packed |= {f"sparse/{dtype}/{key}": part for key, part in parts.items()}
    return packed


def as_parsed(columns: Mapping[str, tf.Tensor], features: FeatureSpecs) -> ParsedColumns:
    """Convert columns of `raw`, or a part of them, to parsed columns."""
    parsed: ParsedColumns = {}
    singles: dict[tf.DType, list[str]] = {}
    for name, values in columns.items():
        if not isinstance(features[name], tf.io.VarLenFeature):
            parsed[name] = _to_dense(values, features[name])
        elif values.shape.rank == 2:
            events = tf.ragged.boolean_mask(values, _is_present(values)).to_sparse()
            parsed[name] = SparseColumn(events.indices, events.values, events.dense_shape)
        else:
            singles.setdefault(values.dtype, []).append(name)
    for names in singles.values():
        parsed |= zip(names, _to_sparse([columns[name] for name in names]), strict=True)
    return {name: parsed[name] for name in columns}


def _to_dense(values: tf.Tensor, spec: tf.io.FixedLenFeature) -> tf.Tensor:
    if values.shape.rank == 1:
        # If the schema expects several values, repeat the value: the operations compute the same result from it.
        values = tf.tile(values[:, tf.newaxis], [1, math.prod(spec.shape)])
    return tf.reshape(values, [-1, *spec.shape])


def _to_sparse(columns: list[tf.Tensor]) -> Iterator[SparseColumn]:
    """Convert columns of the same dtype, each of shape [batch], at once."""
    rows, values, counts, shape = _find_parts(tf.stack(columns))
    indices = split_columns(rows, counts, len(columns))
    return map(SparseColumn, indices, split_columns(values, counts, len(columns)), itertools.repeat(shape))


def _find_parts(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the components of columns of `raw` as sparse columns.

    Args:
      matrix: Values; [columns, batch].

    Returns:
      Indices in the column, int64 [values, 2], and values [values] of all values that are present, by column and then
      by row; number of values per column, int64 [columns]; and the shape of a column, int64 [2].
    """
    is_present = _is_present(matrix)
    rows = tf.pad(tf.where(is_present)[:, 1:], [[0, 0], [0, 1]])
    counts = tf.reduce_sum(tf.cast(is_present, tf.int64), axis=1)
    shape = tf.stack([tf.shape(matrix, tf.int64)[1], tf.constant(1, tf.int64)])
    return rows, tf.boolean_mask(matrix, is_present), counts, shape


def _is_present(values: tf.Tensor) -> Any:
    if values.dtype == tf.string:
        return tf.not_equal(values, "")
    if values.dtype.is_floating:
        return tf.logical_not(tf.math.is_nan(values))
    return tf.not_equal(values, MISSING_INT)
