"""Tables of a statistic per value of a column, and the accumulators that compute them from the training split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.errors import InputError

MISSING = -2
"""Key of a missing value. Keys of other values are hashes from 0 to 2**63 - 2."""
_DROPPED = -1
"""Key of all values that the table does not contain."""
_NO_KEY = (1 << 63) - 1
"""Key in a table without values, which is not a hash."""
MOST_CLASSES = 16
"""Maximum number of classes of a label whose means are computed."""
_PENDING = 1 << 16
"""Minimum number of pending entries before the sums of equal keys are added up."""
_KEYS = ("key", "fold", "class")
_SUMS = ("rows", "weight", "total", "square")

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
State: TypeAlias = list[pa.RecordBatch]
"""Batches with the columns of _KEYS (int64) and _SUMS (int64, then float64). Several batches may contain the same
keys."""


@dataclass(frozen=True)
class ValueTable:
    """A statistic per value.

    Attributes:
      keys: Hashes of the values' texts, or MISSING; int64, ascending, shape [values].
      values: Statistic of all training rows; float32, shape [values, width].
      fold_values: Statistic of the training rows outside a fold; float32, shape [values, folds, width].
    """

    keys: Ints
    values: npt.NDArray[np.float32]
    fold_values: npt.NDArray[np.float32]


@dataclass(frozen=True)
class ValueAccumulator:
    """Adds up labels per value, fold and class. The sums of different values can be computed in different places.

    Attributes:
      size: Maximum number of values.
      min_frequency: Minimum number of rows of a value.
    """

    size: int
    min_frequency: int

    def empty(self) -> State:
        """See Accumulator."""
        return []

    def add(self, state: State, keys: Ints, folds: Ints, classes: Ints, labels: Floats, weights: Floats) -> State:
        """Add the rows of a batch; all arrays have the shape [rows].

        Args:
          state: State to add to.
          keys: See ValueTable.
          folds: Numbers of the folds.
          classes: Hashes of the classes; all the same if the label is a number.
          labels: Labels; 1 if a row has a class.
          weights: Weights. A row whose weight is not a positive finite number is left out.
        """
        counted = np.isfinite(weights) & (weights > 0) & np.isfinite(labels)
        keys, folds, classes, labels, weights = (array[counted] for array in (keys, folds, classes, labels, weights))
        if not len(keys):
            return state
        totals = weights * labels
        sums = (np.ones_like(keys), weights, totals, totals * labels)
        return self.merge(state, [_add_up([_make_batch((keys, folds, classes, *sums))])])

    def merge(self, state: State, other: State) -> State:
        """See Accumulator."""
        batches = [*state, *other]
        # As in VocabularyAccumulator, so that the amortised cost is linear.
        if sum(batch.num_rows for batch in batches[1:]) > max(_PENDING, batches[0].num_rows if batches else 0):
            return [_add_up(batches)]
        return batches

    def prune(self, state: State) -> State:
        """Replace the keys of rare values by one key. The state must contain all rows of its values."""
        if not state:
            return state
        entries = _add_up(state)
        keys, places = np.unique(entries.column(0).to_numpy(), return_inverse=True)
        rows = np.bincount(places, entries.column(3).to_numpy(), len(keys))
        frequent = np.flatnonzero((rows >= self.min_frequency) & (keys != _DROPPED))
        order = np.lexsort((keys[frequent], -rows[frequent]))
        is_kept = np.zeros(len(keys), bool)
        is_kept[frequent[order[: self.size]]] = True
        kept_keys = pa.array(np.where(is_kept, keys, _DROPPED)[places])
        return [_add_up([pa.RecordBatch.from_arrays([kept_keys, *entries.columns[1:]], entries.schema.names)])]


@dataclass(frozen=True)
class CountAccumulator(ValueAccumulator):
    """Counts the rows of a value; see `components.features.encoding_ops.Count`.

    Attributes:
      scale: Form of the counts.
    """

    scale: Literal["log", "share"]

    def result(self, state: State) -> ValueTable:
        """Return the table."""
        if not state:
            return _make_table(np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros((0, 1, 1)))
        entries = _add_up(state)
        all_keys, rows = entries.column(0).to_numpy(), entries.column(3).to_numpy().astype(np.float64)
        keys, places = np.unique(all_keys, return_inverse=True)
        counts = np.bincount(places, rows, len(keys))
        numbers = np.log1p(counts) if self.scale == "log" else counts / rows.sum()
        known = keys >= 0
        return _make_table(keys[known], numbers[known, np.newaxis], numbers[known, np.newaxis, np.newaxis])


@dataclass(frozen=True)
class TargetMeanAccumulator(ValueAccumulator):
    """Computes smoothed means of the label per value; see `components.features.encoding_ops.TargetMean`.

    Attributes:
      smoothing: Number of rows with the mean of all rows that are added.
      folds: Number of folds.
    """

    smoothing: float
    folds: int

    def result(self, state: State) -> ValueTable:
        """Return the table.

        Raises:
          InputError: If there are more than MOST_CLASSES classes.
        """
        if not state:
            return _make_table(np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros((0, self.folds, 1)))
        entries = _add_up(state)
        classes = _sort_classes(entries)
        if len(classes) > MOST_CLASSES:
            raise InputError(
                f"target_mean: expected a label of at most {MOST_CLASSES} classes, since it computes a number per "
                f"class, received {len(classes):,}",
                "use vocab or hash for these columns",
            )
        keys, places = np.unique(entries.column(0).to_numpy(), return_inverse=True)
        by_hash = np.argsort(classes)
        numbers = by_hash[np.searchsorted(classes, entries.column(2).to_numpy(), sorter=by_hash)]
        at = places, entries.column(1).to_numpy(), numbers
        sums = np.zeros((len(_SUMS), len(keys), self.folds, len(classes)))
        for number in range(len(_SUMS)):
            sums[number][at] = entries.column(len(_KEYS) + number).to_numpy()
        everywhere = sums.sum(axis=2)
        outside = everywhere[:, :, np.newaxis] - sums
        # Without rows, rounding may leave a difference of sums of weights.
        outside[:, outside[0] == 0] = 0
        known = keys != _DROPPED
        return _make_table(keys[known], self._encode(everywhere)[known], self._encode(outside)[known])

    def _encode(self, sums: Floats) -> Floats:
        """Compute the features of values from their sums.

        Args:
          sums: The sums of _SUMS; shape [4, values, ..., classes].

        Returns:
          The differences between the smoothed means and the mean of all rows, in units of the label's standard
          deviation; shape [values, ..., classes].
        """
        rows, weight, total, square = sums
        # A row has one class, so the rows of a value are the rows of all its classes.
        rows, weight = (part.sum(axis=-1, keepdims=True) for part in (rows, weight))
        all_rows, all_weight, all_total, all_square = (
            part.sum(axis=0, keepdims=True) for part in (rows, weight, total, square)
        )
        mean = _divide(all_total, all_weight)
        deviation = np.sqrt(np.maximum(_divide(all_square, all_weight) - mean**2, 0))
        # A row that is added has the mean weight, so a factor of all weights does not change the result.
        added = self.smoothing * _divide(all_weight, all_rows)
        # Subtract products, so that the difference is exactly 0 for a value that all rows have.
        difference = _divide(total * all_weight - weight * all_total, all_weight)
        return _divide(_divide(difference, weight + added), deviation)


def _make_table(keys: Ints, values: Floats, fold_values: Floats) -> ValueTable:
    """Return a table with at least one row."""
    if not len(keys):
        keys = np.array([_NO_KEY])
        values, fold_values = (np.zeros((1, *array.shape[1:])) for array in (values, fold_values))
    return ValueTable(keys, values.astype(np.float32), fold_values.astype(np.float32))


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    """Divide; 0 where the denominator is 0."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)


def _sort_classes(entries: pa.RecordBatch) -> Ints:
    """Return the hashes of the classes, the class with the most rows first."""
    classes, places = np.unique(entries.column(2).to_numpy(), return_inverse=True)
    rows = np.bincount(places, entries.column(3).to_numpy(), len(classes))
    return classes[np.lexsort((classes, -rows))]


def _add_up(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the distinct keys with their sums, in ascending order."""
    columns = [np.concatenate([batch.column(at).to_numpy() for batch in batches]) for at in range(len(_KEYS + _SUMS))]
    keys, sums = columns[: len(_KEYS)], columns[len(_KEYS) :]
    order = np.lexsort(keys[::-1])
    keys = [key[order] for key in keys]
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    starts = np.flatnonzero(is_first)
    return _make_batch((*(key[starts] for key in keys), *(np.add.reduceat(part[order], starts) for part in sums)))


def _make_batch(columns: Sequence[npt.NDArray[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], [*_KEYS, *_SUMS])
