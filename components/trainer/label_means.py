"""Means of the label per ID, which trees read instead of a category with many values (Micci-Barreca 2001, A
Preprocessing Scheme for High-Cardinality Categorical Attributes).

A training row reads means over the rows of other folds, so that trees cannot read the row's own label from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from components.models.forest import Floats, TreeInput

_FOLDS = 5
"""Number of folds, which are drawn at random."""
_SMOOTHING = 10.0
"""Number of rows with the mean of all rows that are added to the rows of each ID."""
_CLASSES = 8
"""Maximum number of classes whose shares are computed; the most frequent classes are chosen."""
_IDS, _LEAST_ROWS = 50_000, 2
"""Maximum number of IDs with a mean, and minimum number of rows of each."""


class LabelMeans(NamedTuple):
    """Means of the label, or shares of its classes; `width` numbers per ID.

    Attributes:
      ids: The IDs, ascending, [IDs].
      means: Means of all rows, for unknown IDs, followed by the means of each ID; float32 [1 + IDs, width].
      out_of_fold: For each row, the means of its ID over the rows of other folds, float32 [rows, width].
    """

    ids: npt.NDArray[np.int64]
    means: Floats
    out_of_fold: Floats

    def describe(self, feature: str) -> TreeInput:
        """Return what a forest reads of the feature with these IDs."""
        means = tuple(map(tuple, self.means.tolist()))
        return TreeInput(feature, "means", self.means.shape[1], tuple(self.ids.tolist()), means)


def make_targets(label: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
    """Return the numbers to average, [rows, width]: the label, or for each class whether a row belongs to it.

    Args:
      label: Labels, [rows].
      outputs: Number of logits.
    """
    if outputs == 1:
        return label[:, np.newaxis].astype(np.float64)
    classes, counts = np.unique(label, return_counts=True)
    frequent = np.sort(classes[np.argsort(-counts, kind="stable")[:_CLASSES]])
    return (label[:, np.newaxis] == frequent).astype(np.float64)


def compute_label_means(
    ids: npt.NDArray[np.int64], targets: npt.NDArray[np.float64], weights: npt.ArrayLike, seed: int
) -> LabelMeans:
    """Compute the means of the label per ID.

    Args:
      ids: IDs of the rows, [rows].
      targets: See `make_targets`.
      weights: Weights of the rows, [rows].
      seed: Seed of the folds.
    """
    known = choose_frequent(ids, _IDS, _LEAST_ROWS)
    count, width = 1 + len(known), targets.shape[1]
    place = np.searchsorted(known, ids)
    place = np.where(np.append(known, -1)[place] == ids, place + 1, 0)
    fold = np.random.default_rng(seed).integers(0, _FOLDS, len(ids))
    cell, weights = fold * count + place, np.broadcast_to(weights, len(ids))
    total = np.bincount(cell, weights, _FOLDS * count).reshape(_FOLDS, count, 1)
    columns = [np.bincount(cell, weights * target, _FOLDS * count) for target in targets.T]
    sums = np.stack(columns, axis=-1).reshape(_FOLDS, count, width)
    means = _smooth(sums.sum(axis=0), total.sum(axis=0))
    without_fold = np.stack([_smooth(sums.sum(axis=0) - sums[k], total.sum(axis=0) - total[k]) for k in range(_FOLDS)])
    return LabelMeans(known, means, without_fold[fold, place])


def choose_frequent(ids: npt.NDArray[np.int64], most: int, least_rows: int) -> npt.NDArray[np.int64]:
    """Return the most frequent IDs, at most `most` and each of at least `least_rows` rows, ascending."""
    values, counts = np.unique(ids, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return np.sort(values[order[counts[order] >= least_rows]])


def _smooth(sums: npt.NDArray[np.float64], total: npt.NDArray[np.float64]) -> Floats:
    """Return smoothed means of sums [1 + IDs, width] and weights [1 + IDs, 1]. The first is the mean of all rows."""
    mean = sums.sum(axis=0) / max(total.sum(), np.finfo(np.float64).tiny)
    means = (sums + _SMOOTHING * mean) / (total + _SMOOTHING)
    means[0] = mean
    return means.astype(np.float32)
