"""The validation part: rows that are held out of the training split, and decide when training ends.

With cross-validation there are folds instead: every row is in one fold, and one network per fold trains on the others.
In time, folds have rolling origins: each is a period, and only what was known before it may be trained on.

The eval split decides whether a model is pushed, so neither early stopping nor the Tuner uses it: otherwise the
Evaluator would measure a model on the rows for which it was selected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
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
_MOST_PERIODS = 0.5
"""Maximum share of the rows in folds with rolling origins, so that the first fold has enough earlier rows."""


class ValidationPart(NamedTuple):
    """The choice of the held-out rows; a function of the rows, so that all processes and restarts choose the same rows.

    Attributes:
      share: Share of the rows, or of the groups.
      seed: Seed of the choice.
      by: `row`: at random, stratified by the label; `group`: whole groups, at random; `time`: the newest rows;
        `origin`: the forecasts with the newest origins. Forecasts of labels that are not known at the first of these
        origins are then not used.
      borders: By time or origin, the smallest key of each fold, ascending. A fold ends where the next fold begins.
      folds: Number of folds. More than one fold have equal sizes. In time, they contain the newest rows; otherwise they
        contain all rows, whatever the share.
    """

    share: float
    seed: int
    by: By = "row"
    borders: Sequence[int] = ()
    folds: int = 1

    @classmethod
    def of(
        cls, keys: Iterable[Keys], share: float, seed: int, by: By, folds: int = 1, *, can_roll: bool = False
    ) -> ValidationPart:
        """Plan the part of a split, with at most 100,000 rows, or its folds.

        By time or origin, the keys of all rows are in memory, 8 bytes per row and key.

        Args:
          keys: The features `key_names(by)` of all rows, in pieces; [rows], or [rows, 2] by origin.
          share: Maximum share of the rows; with rolling origins, of each fold.
          seed: Seed of the choice.
          by: See the attribute.
          folds: See the attribute.
          can_roll: Whether the model can be trained on rows before each fold. If not, there is one fold in time: every
            network of a cross-validation is part of the exported model, and would lack the newest rows.
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
        periods = folds if can_roll else 1
        fold_share = min(share, _MOST_PERIODS / periods) if periods > 1 else share
        starts = [min(int(rows * (1 - fold_share * count)), rows - 1) for count in range(periods, 0, -1)]
        borders = [int(border) for border in np.unique(times[starts]) if border > times[0]]
        if not borders:
            # All rows would be held out.
            logging.warning("nearly all rows have the same time, or none: the validation part is chosen at random")
            return cls(share, seed)
        return cls(share, seed, by, tuple(borders), len(borders))

    @property
    def is_rolling(self) -> bool:
        """Whether there are several folds in time."""
        return len(self.borders) > 1

    def numbers(self, keys: Keys, number: int) -> Numbers:
        """Return the folds of the rows in a row group.

        Args:
          keys: The features `key_names(by)` of the rows; see `of`.
          number: Position of the row group in the split.

        Returns:
          int64 [rows]. Without folds, 0 in the part, and -1 outside or NOT_USED; with rolling origins, -1 before the
          first fold.
        """
        if self.by in ("time", "origin"):
            origins = keys.reshape(len(keys), -1)[:, 0]
            numbers = np.searchsorted(self.borders, origins, side="right") - 1
            if self.is_rolling:
                return numbers
            return np.where(self.mask_known(keys, 0) | (numbers >= 0), numbers, NOT_USED)
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

    def mask_known(self, keys: Keys, fold: int) -> Mask:
        """Mark the rows in time that were known before a fold: its training rows; bool [rows].

        Args:
          keys: See `numbers`.
          fold: Number of the fold.
        """
        origins, *ends = keys.reshape(len(keys), -1).T
        border = self.borders[fold]
        known: Mask = origins < border
        return known & (ends[0] <= border) if ends else known

    def mask(self, keys: Keys, number: int, *, inside: bool = True) -> Mask:
        """Mark the rows of a row group that are in the part, or that are trained on, see `numbers`; bool [rows]."""
        numbers = self.numbers(keys, number)
        return numbers >= 0 if inside else numbers == -1


class FoldMasks(NamedTuple):
    """The training rows of a fold, and the rows that it holds out; bool [rows]."""

    training: Mask
    held_out: Mask

    @classmethod
    def of(cls, held_out: Mask) -> FoldMasks:
        """Return the masks of a fold that is trained on all other rows."""
        return cls(~held_out, held_out)


class Selection(NamedTuple):
    """The rows to read from a split.

    Attributes:
      part: The validation part, or the folds.
      inside: Whether to read the rows in the part, or the rows to train on. If None, all rows are read, and the feature
        FOLD contains the row's fold, see `ValidationPart.numbers`.
    """

    part: ValidationPart
    inside: bool | None


def combine_held_out(masks: Sequence[FoldMasks]) -> Mask:
    """Mark the rows that one of the folds holds out; bool [rows]."""
    held_out: Mask = np.any([fold.held_out for fold in masks], axis=0)
    return held_out


def key_names(by: By) -> tuple[str, ...]:
    """Return the names of the transformed features that decide which rows are in the part."""
    if by == "origin":
        return feature_names.ROW_KEY, feature_names.ROW_END
    return (feature_names.LABEL if by == "row" else feature_names.ROW_KEY,)


def _fractions(keys: Keys, seed: int) -> npt.NDArray[np.float64]:
    """Map each key, which is a hash, to a number in [0, 1); equal keys get equal numbers."""
    mixed = (keys.astype(np.uint64) ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(11)) / float(1 << 53)
