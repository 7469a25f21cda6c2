"""The rows of an evaluation by group, such as a user, divided into parts that keep the rows of a group together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from components.base.errors import InputError
from components.compat.tfma.evaluation import SliceKey
from components.data.missing import drop_nan
from components.data.saved_model import column_of
from components.evaluator.binned_sums import Slices
from components.evaluator.binning import Floats, Ints, Numbers, finite, probabilities

PARTS = 32
"""Number of parts. A worker holds one part in memory, about this fraction of the split."""


@dataclass(frozen=True)
class GroupedRows:
    """Rows that belong to a group.

    Attributes:
      groups: 64-bit hash of the row's group; [rows].
      labels: Labels in [0, 1]; [rows].
      weights: Weights; [rows]. If None, all rows count the same.
      scores: Name of a model, "" for the only model → its predictions, [rows].
      slices: Slices of the rows.
    """

    groups: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.float32]
    weights: Floats | None
    scores: Mapping[str, Numbers]
    slices: Slices


def select_grouped(
    batch: pa.RecordBatch,
    column: str,
    labels: Numbers,
    scores: Mapping[str, Numbers],
    weights: Floats | None,
    slices: Slices,
) -> GroupedRows:
    """Return the rows of a batch that belong to a group, because they have a value in the group's column.

    Args:
      batch: A batch of components.data.examples.
      column: Column of the group.
      labels: Labels; [rows].
      scores: See GroupedRows.
      weights: Weights; [rows].
      slices: Slices of the rows.

    Raises:
      InputError: A row has several values in the column.
      ValueError: A label is not in [0, 1], or a prediction is NaN.
    """
    present, hashes = _hash_groups(column_of(batch, column), column)
    for predictions in scores.values():
        finite(predictions)
    groups = np.zeros(batch.num_rows, np.uint64)
    groups[present] = hashes
    rows = GroupedRows(groups, probabilities(labels).astype(np.float32), weights, scores, slices)
    return rows if len(hashes) == batch.num_rows else _take(rows, np.flatnonzero(present))


def _hash_groups(values: pa.Array, name: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """Return whether a row has a value, [rows], and the hashes of the values."""
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
    # Different whole numbers have different hashes; n texts contain a collision with probability n² / 2**65.
    return counts > 0, pd.util.hash_array(flat.to_numpy(zero_copy_only=False), categorize=False)


def divide(rows: GroupedRows) -> Iterator[tuple[int, GroupedRows]]:
    """Divide rows into parts by group, and yield the number, below PARTS, and the rows of every part with rows."""
    parts = (rows.groups % np.uint64(PARTS)).astype(np.int64)
    ends = np.cumsum(np.bincount(parts, minlength=PARTS))
    for part, at in enumerate(np.split(np.argsort(parts, kind="stable"), ends[:-1])):
        if len(at):
            yield part, _take(rows, at)


def _take(rows: GroupedRows, at: Ints) -> GroupedRows:
    position = np.full(len(rows.groups), -1, np.int64)
    position[at] = np.arange(len(at))
    pair_rows = position[rows.slices.rows]
    is_taken = pair_rows >= 0
    used, numbers = np.unique(rows.slices.numbers[is_taken], return_inverse=True)
    return GroupedRows(
        rows.groups[at],
        rows.labels[at],
        None if rows.weights is None else rows.weights[at],
        {name: predictions[at] for name, predictions in rows.scores.items()},
        Slices([rows.slices.keys[number] for number in used.tolist()], pair_rows[is_taken], numbers),
    )


def concatenate(parts: Sequence[GroupedRows]) -> GroupedRows:
    """Concatenate one or more parts."""
    numbers: dict[SliceKey, int] = {}
    pair_rows, pair_slices, before = [], [], 0
    for part in parts:
        new_numbers = np.array([numbers.setdefault(key, len(numbers)) for key in part.slices.keys], np.int64)
        pair_rows.append(part.slices.rows + before)
        pair_slices.append(new_numbers[part.slices.numbers])
        before += len(part.groups)
    weights = [part.weights for part in parts if part.weights is not None]
    return GroupedRows(
        np.concatenate([part.groups for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(weights) if weights else None,
        {name: np.concatenate([part.scores[name] for part in parts]) for name in parts[0].scores},
        Slices(list(numbers), np.concatenate(pair_rows), np.concatenate(pair_slices)),
    )
