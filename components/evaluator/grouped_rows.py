"""The rows of an evaluation by group, such as those of a user: divided into parts that have all rows of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from components.base.errors import InputError
from components.compat.tfma.columnar import Floats, Ints, Numbers, finite, probabilities
from components.compat.tfma.evaluation import SliceKey
from components.data.missing import drop_nan
from components.data.saved_model import column_of
from components.evaluator.binned_sums import Slices

PARTS = 32
"""A worker has the rows of one part in memory: about so many times less than the split."""


@dataclass(frozen=True)
class GroupedRows:
    """Rows that belong to a group.

    Attributes:
      groups: a 64-bit hash of each row's group; equal for equal groups, [rows].
      labels: in [0, 1], [rows].
      weights: [rows]; None: all count the same.
      scores: name of each model, "" for the only one → its predictions, [rows].
      slices: the rows' slices.
    """

    groups: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.float32]
    weights: Floats | None
    scores: Mapping[str, Numbers]
    slices: Slices


def of_batch(
    batch: pa.RecordBatch,
    column: str,
    labels: Numbers,
    scores: Mapping[str, Numbers],
    weights: Floats | None,
    slices: Slices,
) -> GroupedRows:
    """Return the rows of a batch that belong to a group, that is, have a value of the group's column.

    Args:
      batch: a batch of components.data.examples.
      column: of the group.
      labels: [rows].
      scores: see GroupedRows.
      weights: [rows].
      slices: the rows' slices.

    Raises:
      InputError: a row has several values of the column.
      ValueError: a label is not in [0, 1], or a prediction is NaN.
    """
    present, groups = _groups(column_of(batch, column), column)
    for each in scores.values():
        finite(each)
    found = np.zeros(batch.num_rows, np.uint64)
    found[present] = groups
    rows = GroupedRows(found, probabilities(labels).astype(np.float32), weights, scores, slices)
    return rows if len(groups) == batch.num_rows else _taken(rows, np.flatnonzero(present))


def _groups(values: pa.Array, name: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """Return which rows have a value, [rows], and the hashes of the values."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), bool), np.empty(0, np.uint64)
    values = drop_nan(values)
    counts = np.diff(np.asarray(values.offsets))
    if (counts > 1).any():
        raise InputError(
            f"evaluation.group: expected one value of {name!r} in each row, received a row with {counts.max()}",
            "name a column with one value",
        )
    flat = values.flatten()
    # Whole numbers have different hashes; of n texts two have the same one with the probability n² / 2**65.
    return counts > 0, pd.util.hash_array(flat.to_numpy(zero_copy_only=False), categorize=False)


def divided(rows: GroupedRows) -> Iterator[tuple[int, GroupedRows]]:
    """Yield each part that has rows, with its number below PARTS."""
    parts = (rows.groups % np.uint64(PARTS)).astype(np.int64)
    ends = np.cumsum(np.bincount(parts, minlength=PARTS))
    for part, at in enumerate(np.split(np.argsort(parts, kind="stable"), ends[:-1])):
        if len(at):
            yield part, _taken(rows, at)


def _taken(rows: GroupedRows, at: Ints) -> GroupedRows:
    position = np.full(len(rows.groups), -1, np.int64)
    position[at] = np.arange(len(at))
    of_pair = position[rows.slices.rows]
    kept = of_pair >= 0
    used, numbers = np.unique(rows.slices.numbers[kept], return_inverse=True)
    return GroupedRows(
        rows.groups[at],
        rows.labels[at],
        None if rows.weights is None else rows.weights[at],
        {name: each[at] for name, each in rows.scores.items()},
        Slices([rows.slices.keys[number] for number in used.tolist()], of_pair[kept], numbers),
    )


def concatenated(parts: Sequence[GroupedRows]) -> GroupedRows:
    """Return the rows of all; at least one."""
    numbers: dict[SliceKey, int] = {}
    in_slices, of_slices, before = [], [], 0
    for part in parts:
        of_part = np.array([numbers.setdefault(key, len(numbers)) for key in part.slices.keys], np.int64)
        in_slices.append(part.slices.rows + before)
        of_slices.append(of_part[part.slices.numbers])
        before += len(part.groups)
    weights = [part.weights for part in parts if part.weights is not None]
    return GroupedRows(
        np.concatenate([part.groups for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(weights) if weights else None,
        {name: np.concatenate([part.scores[name] for part in parts]) for name in parts[0].scores},
        Slices(list(numbers), np.concatenate(in_slices), np.concatenate(of_slices)),
    )
