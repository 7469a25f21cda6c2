"""Parsed columns as a few tensors for each dtype, whatever the number of columns.

TensorFlow spends time on each node of a graph and on each argument of a function: in tracing, in loading, and about
ten times in the first call of a signature. For a table of hundreds of columns, functions with an argument for each
column would take more time than everything else. One op joins all columns of a dtype, and one divides them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

FeatureSpecs: TypeAlias = Mapping[str, Any]
"""Raw column → tf.io.VarLenFeature or tf.io.FixedLenFeature."""


class SparseColumn(NamedTuple):
    """The components of a SparseTensor, in its order.

    For hundreds of columns, the checks in the constructor of tf.SparseTensor take a tenth of an export.
    """

    indices: tf.Tensor
    values: tf.Tensor
    dense_shape: tf.Tensor


ParsedColumns: TypeAlias = dict[str, "tf.Tensor | SparseColumn"]
"""Raw column → its values, as tf.io.parse_example returns them."""
PackedColumns: TypeAlias = dict[str, tf.Tensor]
"""Of the VarLenFeatures of each dtype: `indices` int64 [values, 2] and `values` [values] of one column after the other;
`counts` int64 [columns]: the number of values of each column; `shapes` int64 [columns, 2]: dense shapes. Of the
FixedLenFeatures of each dtype and shape: [batch, columns, …]."""


def packed_specs(features: FeatureSpecs) -> dict[str, tf.TensorSpec]:
    """Return the types of packed columns."""
    specs = {}
    for key, names in _keys(features).items():
        first = features[names[0]]
        if isinstance(first, tf.io.VarLenFeature):
            specs[f"{key}/indices"] = tf.TensorSpec([None, 2], tf.int64)
            specs[f"{key}/values"] = tf.TensorSpec([None], first.dtype)
            specs[f"{key}/counts"] = tf.TensorSpec([len(names)], tf.int64)
            specs[f"{key}/shapes"] = tf.TensorSpec([len(names), 2], tf.int64)
        else:
            specs[key] = tf.TensorSpec([None, len(names), *first.shape], first.dtype)
    return specs


def pack(columns: ParsedColumns, features: FeatureSpecs) -> PackedColumns:
    """Join the columns of each dtype.

    Args:
      columns: The columns.
      features: The spec of each column.
    """
    packed: PackedColumns = {}
    for key, names in _keys(features).items():
        members = [columns[name] for name in names]
        if isinstance(features[names[0]], tf.io.VarLenFeature):
            values = [each.values for each in members]
            packed[f"{key}/indices"] = tf.concat([each.indices for each in members], axis=0)
            packed[f"{key}/values"] = tf.concat(values, axis=0)
            packed[f"{key}/counts"] = tf.concat(tf.raw_ops.ShapeN(input=values, out_type=tf.int64), axis=0)
            packed[f"{key}/shapes"] = tf.stack([each.dense_shape for each in members])
        else:
            packed[key] = tf.stack(members, axis=1)
    return packed


def unpack(packed: Mapping[str, tf.Tensor], features: FeatureSpecs) -> ParsedColumns:
    """Divide packed columns; the inverse of `pack`."""
    columns: ParsedColumns = {}
    for key, names in _keys(features).items():
        if isinstance(features[names[0]], tf.io.VarLenFeature):
            indices, values = (
                split_columns(packed[f"{key}/{part}"], packed[f"{key}/counts"], len(names))
                for part in ("indices", "values")
            )
            shapes = tf.unstack(packed[f"{key}/shapes"], len(names))
            columns.update(zip(names, map(SparseColumn, indices, values, shapes), strict=True))
        else:
            columns.update(zip(names, tf.unstack(packed[key], len(names), axis=1), strict=True))
    return columns


def split_columns(joined: tf.Tensor, counts: tf.Tensor, columns: int) -> Sequence[tf.Tensor]:
    """Divide the values of one column after the other.

    Args:
      joined: The values; [values, …].
      counts: Number of values of each column; int64 [columns].
      columns: Number of columns.
    """
    return tf.split(joined, counts, num=columns)  # type: ignore[no-any-return]


def _keys(features: FeatureSpecs) -> dict[str, list[str]]:
    """Return key in PackedColumns → columns."""
    names: dict[str, list[str]] = {}
    for name, spec in features.items():
        is_sparse = isinstance(spec, tf.io.VarLenFeature)
        key = ["sparse", spec.dtype.name] if is_sparse else ["dense", spec.dtype.name, *map(str, spec.shape)]
        names.setdefault("/".join(key), []).append(name)
    return names
