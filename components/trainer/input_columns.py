"""Columns of transformed examples as tensors, and the part of the examples that a worker reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

FeatureSpec = Mapping[str, Any]
"""Column → tf.io.FixedLenFeature or VarLenFeature, as tf.io.parse_example takes them."""
Columns = dict[str, Any]
"""Column → its values: a tensor of shape [batch, …], or a SparseTensor [batch, n] for a VarLenFeature."""
Stacked = dict[str, Any]
"""Columns of one value for each row, stacked in one tensor [rows, columns] for each dtype, whose key begins with a
slash; other columns by name: tensors [rows, …], and RaggedTensors [rows, None] for a VarLenFeature. A gather of rows is
one for each key."""


@dataclass(frozen=True)
class InputShard:
    """The part of the examples that one worker reads, and the batch that it begins with.

    Attributes:
      index: the worker's number; an int64 scalar tensor if one graph serves all workers.
      count: number of workers.
      start: the first batch, counted from the beginning of training; an int64 scalar tensor likewise.
    """

    index: int | tf.Tensor = 0
    count: int = 1
    start: int | tf.Tensor = 0


def stack(columns: Columns, spec: FeatureSpec) -> Stacked:
    """Stacks parsed columns."""
    stacked: Stacked = {}
    for key, names in layout(spec).items():
        if key not in spec:
            stacked[key] = tf.stack([columns[name] for name in names], axis=1)
        elif isinstance(spec[key], tf.io.VarLenFeature):
            stacked[key] = tf.RaggedTensor.from_sparse(columns[key])
        else:
            stacked[key] = columns[key]
    return stacked


def unstack(stacked: Stacked, spec: FeatureSpec) -> Columns:
    """Returns the columns, as tf.io.parse_example does."""
    columns: Columns = {}
    for key, names in layout(spec).items():
        values = stacked[key]
        if key not in spec:
            columns.update(zip(names, tf.unstack(values, len(names), axis=1), strict=True))
        else:
            columns[key] = values.to_sparse() if isinstance(values, tf.RaggedTensor) else values
    return columns


def layout(spec: FeatureSpec) -> dict[str, list[str]]:
    """Returns the keys of the stacked columns, sorted, and the names of the columns of each."""
    keys: dict[str, list[str]] = {}
    for name in sorted(spec):
        feature = spec[name]
        one = isinstance(feature, tf.io.FixedLenFeature) and not list(feature.shape)
        # No feature's name begins with a slash.
        keys.setdefault(f"/{feature.dtype.name}" if one else name, []).append(name)
    return keys
