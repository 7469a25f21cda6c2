"""Parsed columns as a few tensors per dtype, whatever the number of columns.

TensorFlow spends time on every node of a graph and every argument of a function: when it traces, when it loads, and
about ten times as much in the first call of a signature. For a table of hundreds of columns, functions with an argument
per column would take longer than everything else. One op joins all columns of a dtype, and another divides them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

FeatureSpecs: TypeAlias = Mapping[str, Any]
"""Raw column → tf.io.VarLenFeature or tf.io.FixedLenFeature."""


class SparseColumn(NamedTuple):
    """The components of a tf.SparseTensor, in its order.

    With hundreds of columns, the checks in the constructor of tf.SparseTensor would take a tenth of an export.
    """

    indices: tf.Tensor
    values: tf.Tensor
    dense_shape: tf.Tensor


ParsedColumns: TypeAlias = dict[str, "tf.Tensor | SparseColumn"]
"""Raw column → its values, as tf.io.parse_example returns them."""
PackedColumns: TypeAlias = dict[str, tf.Tensor]
"""VarLenFeatures, per dtype: `indices` int64 [values, 2] and `values` [values] of one column after another; `counts`
int64 [columns]: number of values in a column; `shapes` int64 [columns, 2]: dense shapes. FixedLenFeatures, per dtype
and shape: [batch, columns, …]."""


def describe_packed(features: FeatureSpecs) -> dict[str, tf.TensorSpec]:
    """Return the types of packed columns."""
    specs = {}
    for key, names in _group_by_key(features).items():
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
    """Join the columns per dtype.

    Args:
      columns: The columns.
      features: The specs of the columns.
    """
    packed: PackedColumns = {}
    for key, names in _group_by_key(features).items():
        members = [columns[name] for name in names]
        if isinstance(features[names[0]], tf.io.VarLenFeature):
            values = [column.values for column in members]
            packed[f"{key}/indices"] = tf.concat([column.indices for column in members], axis=0)
            packed[f"{key}/values"] = tf.concat(values, axis=0)
            packed[f"{key}/counts"] = tf.concat(tf.raw_ops.ShapeN(input=values, out_type=tf.int64), axis=0)
            packed[f"{key}/shapes"] = tf.stack([column.dense_shape for column in members])
        else:
            packed[key] = tf.stack(members, axis=1)
    return packed


def unpack(packed: Mapping[str, tf.Tensor], features: FeatureSpecs) -> ParsedColumns:
    """Divide packed columns; the inverse of `pack`."""
    columns: ParsedColumns = {}
    for key, names in _group_by_key(features).items():
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
    """Divide joined columns.

    Args:
      joined: The values of one column after another; [values, …].
      counts: Number of values in each column; int64 [columns].
      columns: Number of columns.
    """
    return tf.split(joined, counts, num=columns)  # type: ignore[no-any-return]


def _group_by_key(features: FeatureSpecs) -> dict[str, list[str]]:
    """Return key in PackedColumns → its columns."""
    names: dict[str, list[str]] = {}
    for name, spec in features.items():
        is_sparse = isinstance(spec, tf.io.VarLenFeature)
        key = ["sparse", spec.dtype.name] if is_sparse else ["dense", spec.dtype.name, *map(str, spec.shape)]
        names.setdefault("/".join(key), []).append(name)
    return names
