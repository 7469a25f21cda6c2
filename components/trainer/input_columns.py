"""Columns of transformed examples as tensors, and a worker's part of the examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.features import feature_names
from components.trainer.validation_part import Selection

FeatureSpec = Mapping[str, Any]
"""Column → tf.io.FixedLenFeature or VarLenFeature, as tf.io.parse_example takes them."""
Columns = dict[str, Any]
"""Column → its values: a tensor of shape [batch, …], or a SparseTensor [batch, n] for a VarLenFeature."""
Stacked = dict[str, Any]
"""Columns with few values per row, stacked in one tensor [rows, columns, …] per dtype and shape, whose key begins with
a slash; other columns by name: tensors [rows, …], and RaggedTensors [rows, None] for a VarLenFeature. Selecting rows
takes one gather per key."""

_FEW = 8
"""Maximum number of values per row in a stacked column. Stacking needs memory for a second copy of the column."""
_DTYPES = (tf.float32, tf.int64, tf.string)
"""The dtypes of examples. Pixels have a dtype and a shape that differ from the spec, so they are not stacked."""


@dataclass(frozen=True)
class InputShard:
    """The part of the examples that a worker reads, and its first batch.

    Attributes:
      index: Number of the worker; an int64 scalar tensor if one graph serves all workers.
      count: Number of workers.
      start: Number of the first batch since the beginning of training; like `index`, an int or an int64 scalar tensor.
    """

    index: int | tf.Tensor = 0
    count: int = 1
    start: int | tf.Tensor = 0


def add_fold(spec: FeatureSpec, selection: Selection | None) -> FeatureSpec:
    """Add the feature FOLD if the selection reads all rows."""
    if selection is None or selection.inside is not None:
        return spec
    return {**spec, feature_names.FOLD: tf.io.FixedLenFeature([], tf.int64)}


def stack(columns: Columns) -> Stacked:
    """Stack columns with few values per row; see `Stacked`."""
    stacked: Stacked = {}
    for name, values in columns.items():
        if isinstance(values, tf.SparseTensor):
            stacked[name] = tf.RaggedTensor.from_sparse(values)
        elif values.dtype not in _DTYPES or math.prod(values.shape[1:]) > _FEW:
            stacked[name] = values
    few = {name: (values.dtype, values.shape[1:].as_list()) for name, values in columns.items() if name not in stacked}
    for key, names in _group_by_form(few).items():
        stacked[key] = tf.stack([columns[name] for name in names], axis=1)
    return stacked


def find_matrix_keys(spec: FeatureSpec) -> dict[str, str]:
    """Return column → key in Stacked, for the columns that are stacked."""
    few = {
        name: (column.dtype, column.shape)
        for name, column in spec.items()
        if not isinstance(column, tf.io.VarLenFeature) and math.prod(column.shape) <= _FEW
    }
    return {name: key for key, names in _group_by_form(few).items() for name in names}


def unstack(stacked: Stacked, spec: FeatureSpec) -> Columns:
    """Divide stacked columns; return them in the types of tf.io.parse_example."""
    columns: Columns = {
        name: values.to_sparse() if isinstance(values, tf.RaggedTensor) else values
        for name, values in stacked.items()
        if name in spec
    }
    few = {name: (column.dtype, column.shape) for name, column in spec.items() if name not in columns}
    for key, names in _group_by_form(few).items():
        columns.update(zip(names, tf.unstack(stacked[key], len(names), axis=1), strict=True))
    return columns


def _group_by_form(columns: Mapping[str, tuple[tf.DType, Sequence[int]]]) -> dict[str, list[str]]:
    """Return dtype and shape of a row → sorted names of columns; the slash distinguishes the key from a feature."""
    names: dict[str, list[str]] = {}
    for name in sorted(columns):
        dtype, shape = columns[name]
        names.setdefault("/".join(["", dtype.name, *map(str, shape)]), []).append(name)
    return names
