"""Columns of transformed examples as tensors, and the part of the examples that a worker reads."""

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
"""Columns of few values for each row, stacked in one tensor [rows, columns, …] for each dtype and shape, whose key
begins with a slash; other columns by name: tensors [rows, …], and RaggedTensors [rows, None] for a VarLenFeature. A
gather of rows is one for each key."""

_FEW = 8
"""The greatest number of values in a row of a column that is stacked: meanwhile there are two copies of the column."""
_DTYPES = (tf.float32, tf.int64, tf.string)
"""Those of examples. Pixels are of another dtype, and of another shape than the spec says."""


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


def with_fold(spec: FeatureSpec, selection: Selection | None) -> FeatureSpec:
    """Add the feature FOLD, if the selection has it."""
    if selection is None or selection.inside is not None:
        return spec
    return {**spec, feature_names.FOLD: tf.io.FixedLenFeature([], tf.int64)}


def stack(columns: Columns) -> Stacked:
    """Stacks columns."""
    stacked: Stacked = {}
    for name, values in columns.items():
        if isinstance(values, tf.SparseTensor):
            stacked[name] = tf.RaggedTensor.from_sparse(values)
        elif values.dtype not in _DTYPES or math.prod(values.shape[1:]) > _FEW:
            stacked[name] = values
    rest = {name: (each.dtype, each.shape[1:].as_list()) for name, each in columns.items() if name not in stacked}
    for key, names in _by_form(rest).items():
        stacked[key] = tf.stack([columns[name] for name in names], axis=1)
    return stacked


def matrix_keys(spec: FeatureSpec) -> dict[str, str]:
    """Return column → key in Stacked, for the columns that are stacked."""
    few = {
        name: (each.dtype, each.shape)
        for name, each in spec.items()
        if not isinstance(each, tf.io.VarLenFeature) and math.prod(each.shape) <= _FEW
    }
    return {name: key for key, names in _by_form(few).items() for name in names}


def unstack(stacked: Stacked, spec: FeatureSpec) -> Columns:
    """Return the columns, in the types of tf.io.parse_example."""
    columns: Columns = {
        name: values.to_sparse() if isinstance(values, tf.RaggedTensor) else values
        for name, values in stacked.items()
        if name in spec
    }
    rest = {name: (each.dtype, each.shape) for name, each in spec.items() if name not in columns}
    for key, names in _by_form(rest).items():
        columns.update(zip(names, tf.unstack(stacked[key], len(names), axis=1), strict=True))
    return columns


def _by_form(columns: Mapping[str, tuple[tf.DType, Sequence[int]]]) -> dict[str, list[str]]:
    """Return dtype and shape of a row → names of columns, sorted; the slash tells the key from a feature's name."""
    names: dict[str, list[str]] = {}
    for name in sorted(columns):
        dtype, shape = columns[name]
        names.setdefault("/".join(["", dtype.name, *map(str, shape)]), []).append(name)
    return names
