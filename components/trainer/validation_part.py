"""The validation part: rows of the training split that training does not see, and that decide when it ends.

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

_MOST_ROWS = 100_000
"""Rows from which the mean loss is exact enough; more would only make each evaluation slower."""


class ValidationPart(NamedTuple):
    """Which rows are in the part; a function of the rows, so that every process and every restart finds the same ones.

    Attributes:
      share: the share of the rows, or of the groups.
      seed: of the choice.
      by: row: at random, stratified by the label; group: whole groups, at random; time: the newest rows.
      border: by time, the first key in the part.
    """

    share: float
    seed: int
    by: By = "row"
    border: int = 0

    @classmethod
    def of(cls, keys: Iterable[Keys], share: float, seed: int, by: By) -> ValidationPart:
        """Plans the part of a split, with at most 100,000 rows.

        By time it holds the key of every row, 8 bytes each.

        Args:
          keys: the feature `key(by)` of all rows, in pieces.
          share: the share of the rows, at most.
          seed: of the choice.
          by: as the attribute.
        """
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

    def mask(self, keys: Keys, number: int) -> Mask:
        """Marks the rows of a row group that are in the part.

        Args:
          keys: the feature `key(by)` of its rows; [rows].
          number: of the row group in the split.

        Returns:
          bool; [rows].
        """
        if self.by == "time":
            return keys >= self.border
        random = np.random.default_rng([self.seed, number])
        if self.by == "row":
            # Every 1/share-th row, in the order of the labels.
            order = np.lexsort((random.random(len(keys)), keys))
            steps = np.floor(np.arange(len(keys) + 1) * self.share + random.random())
            mask = np.empty(len(keys), bool)
            mask[order] = np.diff(steps) > 0
            return mask
        alone = random.random(len(keys)) < self.share
        return np.where(keys == feature_names.NO_ROW_KEY, alone, _fractions(keys, self.seed) < self.share)


class Selection(NamedTuple):
    """The rows of a split that are read.

    Attributes:
      part: the validation part.
      inside: whether its rows are read, or all others.
    """

    part: ValidationPart
    inside: bool

    def mask(self, keys: Keys, number: int) -> Mask:
        """Marks the rows of a row group that are read, see `ValidationPart.mask`."""
        return self.part.mask(keys, number) == self.inside


def key(by: By) -> str:
    """Returns the transformed feature that decides which rows are in the part."""
    return feature_names.LABEL if by == "row" else feature_names.ROW_KEY


def _fractions(keys: Keys, seed: int) -> npt.NDArray[np.float64]:
    """Returns a number in [0, 1) for each key, the same for equal keys; the keys are hashes already."""
    mixed = (keys.astype(np.uint64) ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)) / float(1 << 53)
