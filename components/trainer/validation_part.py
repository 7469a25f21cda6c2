"""The validation part: rows of the training split that training does not see, and that decide when it ends.

Or, with cross-validation, folds: every row is in one, and of as many networks as there are folds, one does not see it.

The eval split decides whether a model is pushed, so neither early stopping nor the Tuner uses it: the Evaluator would
measure a model that was chosen for the rows it is measured on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from components.features import feature_names

By: TypeAlias = Literal["row", "group", "time"]
Keys: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]

_MOST_ROWS = 100_000
"""Rows from which the mean loss is exact enough; more would only make each evaluation slower."""


class ValidationPart(NamedTuple):
    """Which rows are in the part; a function of the rows, so that every process and every restart finds the same ones.

    Attributes:
      share: the share of the rows, or of the groups.
      seed: of the choice.
      by: row: at random, stratified by the label; group: whole groups, at random; time: the newest rows.
      border: by time, the first key in the part.
      folds: the number of folds; with several, they are of equal size and contain all rows, whatever the share.
    """

    share: float
    seed: int
    by: By = "row"
    border: int = 0
    folds: int = 1

    @classmethod
    def of(cls, keys: Iterable[Keys], share: float, seed: int, by: By, folds: int = 1) -> ValidationPart:
        """Plans the part of a split, with at most 100,000 rows; or its folds.

        By time there is one part whatever `folds` is, since only the newest rows are not known in advance.

        By time it holds the key of every row, 8 bytes each.

        Args:
          keys: the feature `key(by)` of all rows, in pieces.
          share: the share of the rows, at most.
          seed: of the choice.
          by: as the attribute.
          folds: as the attribute.
        """
        if folds > 1 and by != "time":
            return cls(share, seed, by, folds=folds)
        pieces = list(keys) if by == "time" else [np.empty(len(each), bool) for each in keys]
        rows = sum(map(len, pieces))
        share = min(share, _MOST_ROWS / max(rows, 1))
        if by != "time" or not rows:
            return cls(share, seed, by)
        times = np.sort(np.concatenate(pieces))
        border = times[min(int(rows * (1 - share)), rows - 1)]
        if border == times[0]:
            # A border there would leave no row to train on.
            logging.warning("nearly all rows have the same time, or none: those to validate on are chosen at random")
            return cls(share, seed)
        return cls(share, seed, by, int(border))

    def numbers(self, keys: Keys, number: int) -> Numbers:
        """Return the fold that each row of a row group is in.

        Args:
          keys: the feature `key(by)` of its rows; [rows].
          number: of the row group in the split.

        Returns:
          int64; [rows]. Without folds, 0 in the part, and -1 outside.
        """
        if self.by == "time":
            return (keys >= self.border) - 1
        random = np.random.default_rng([self.seed, number])
        if self.by == "row":
            # In the order of the labels, every 1/share-th row, or the folds in turn.
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

    def mask(self, keys: Keys, number: int) -> Mask:
        """Mark the rows of a row group that are in the part, see `numbers`; bool [rows]."""
        return self.numbers(keys, number) >= 0


class Selection(NamedTuple):
    """The rows of a split that are read.

    Attributes:
      part: the validation part, or the folds.
      inside: whether the part's rows are read, or all others; None: all rows, and the feature FOLD says where each is,
        see `ValidationPart.numbers`.
    """

    part: ValidationPart
    inside: bool | None


def key(by: By) -> str:
    """Return the transformed feature that decides which rows are in the part."""
    return feature_names.LABEL if by == "row" else feature_names.ROW_KEY


def _fractions(keys: Keys, seed: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each key, the same for equal keys; the keys are hashes already."""
    mixed = (keys.astype(np.uint64) ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)) / float(1 << 53)
