"""The validation part: rows that are held out of the training split, and decide when training ends.

With cross-validation there are folds instead: every row is in one fold, and one network per fold trains on the others.

The eval split decides whether a model is pushed, so neither early stopping nor the Tuner uses it: otherwise the
Evaluator would measure a model on the rows for which it was selected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from components.features import feature_names

By: TypeAlias = Literal["row", "group", "time", "origin"]
Keys: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]

NOT_USED = -2
"""Number of a row that is neither in the part nor trained on."""
_MOST_ROWS = 100_000
"""Maximum number of rows in the part: enough for an exact mean loss, and more would only slow evaluations down."""


class ValidationPart(NamedTuple):
    """The choice of the held-out rows; a function of the rows, so that all processes and restarts choose the same rows.

    Attributes:
      share: Share of the rows, or of the groups.
      seed: Seed of the choice.
      by: `row`: at random, stratified by the label; `group`: whole groups, at random; `time`: the newest rows;
        `origin`: the forecasts with the newest origins. Forecasts of labels that are not known at the first of these
        origins are then not used.
      border: By time or origin, the smallest key in the part.
      folds: Number of folds. More than one fold have equal sizes and contain all rows, whatever the share.
    """

    share: float
    seed: int
    by: By = "row"
    border: int = 0
    folds: int = 1

    @classmethod
    def of(cls, keys: Iterable[Keys], share: float, seed: int, by: By, folds: int = 1) -> ValidationPart:
        """Plan the part of a split, with at most 100,000 rows, or its folds.

        By time or origin, `folds` is ignored, because only the newest rows are unknown in advance. The keys of all rows
        are then in memory, 8 bytes per row and key.

        Args:
          keys: The features `key_names(by)` of all rows, in pieces; [rows], or [rows, 2] by origin.
          share: Maximum share of the rows.
          seed: Seed of the choice.
          by: See the attribute.
          folds: See the attribute.
        """
        is_in_time = by in ("time", "origin")
        if folds > 1 and not is_in_time:
            return cls(share, seed, by, folds=folds)
        pieces = [piece.reshape(len(piece), -1)[:, 0] if is_in_time else np.empty(len(piece), bool) for piece in keys]
        rows = sum(map(len, pieces))
        share = min(share, _MOST_ROWS / max(rows, 1))
        if not is_in_time or not rows:
            return cls(share, seed, by)
        times = np.sort(np.concatenate(pieces))
        border = times[min(int(rows * (1 - share)), rows - 1)]
        if border == times[0]:
            # All rows would be held out.
            logging.warning("nearly all rows have the same time, or none: the validation part is chosen at random")
            return cls(share, seed)
        return cls(share, seed, by, int(border))

    def numbers(self, keys: Keys, number: int) -> Numbers:
        """Return the folds of the rows in a row group.

        Args:
          keys: The features `key_names(by)` of the rows; see `of`.
          number: Position of the row group in the split.

        Returns:
          int64 [rows]. Without folds, 0 in the part, and -1 outside or NOT_USED.
        """
        if self.by == "time":
            return (keys >= self.border) - 1
        if self.by == "origin":
            origins, ends = keys.T
            return np.where(origins >= self.border, 0, np.where(ends > self.border, NOT_USED, -1))
        random = np.random.default_rng([self.seed, number])
        if self.by == "row":
            # Sort by the label, and take every 1/share-th row, or deal the rows to the folds in turn.
            order = np.lexsort((random.random(len(keys)), keys))
            numbers = np.empty(len(keys), np.int64)
            if self.folds > 1:
                numbers[order] = (np.arange(len(keys)) + random.integers(self.folds)) % self.folds
            else:
                steps = np.floor(np.arange(len(keys) + 1) * self.share + random.random())
                numbers[order] = (np.diff(steps) > 0) - 1
            return numbers
        alone = random.random(len(keys))
        fractions = np.where(keys == feature_names.NO_ROW_KEY, alone, _fractions(keys, self.seed))
        if self.folds > 1:
            return (fractions * self.folds).astype(np.int64)
        return (fractions < self.share) - 1

    def mask(self, keys: Keys, number: int, *, inside: bool = True) -> Mask:
        """Mark the rows of a row group that are in the part, or that are trained on, see `numbers`; bool [rows]."""
        numbers = self.numbers(keys, number)
        return numbers >= 0 if inside else numbers == -1


class Selection(NamedTuple):
    """The rows to read from a split.

    Attributes:
      part: The validation part, or the folds.
      inside: Whether to read the rows in the part, or the rows to train on. If None, all rows are read, and the feature
        FOLD contains the row's fold, see `ValidationPart.numbers`.
    """

    part: ValidationPart
    inside: bool | None


def key_names(by: By) -> tuple[str, ...]:
    """Return the names of the transformed features that decide which rows are in the part."""
    if by == "origin":
        return feature_names.ROW_KEY, feature_names.ROW_END
    return (feature_names.LABEL if by == "row" else feature_names.ROW_KEY,)


def _fractions(keys: Keys, seed: int) -> npt.NDArray[np.float64]:
    """Map each key, which is a hash, to a number in [0, 1); equal keys get equal numbers."""
    mixed = (keys.astype(np.uint64) ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)) / float(1 << 53)
