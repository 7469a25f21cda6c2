"""The data of an evaluation's charts, as dataclasses and as the file `plots.json` next to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.base.config_section import Task
from components.evaluator.verdict import MissedClasses
from components.results.json_result import JsonResult

FILE = "plots.json"
AT = 0.5
"""Smallest probability of the decision 1 of a model without a threshold of its own, as in TFMA's accuracy, precision
and recall."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Bucket:
    """The rows whose predictions (or residuals) are between two bounds.

    Attributes:
      low: Lower bound, inclusive.
      high: Upper bound, exclusive.
      rows: Number of rows.
      labels: Sum of the labels; 0 for residuals.
      predictions: Sum of the predictions or residuals.
    """

    low: float
    high: float
    rows: float
    labels: float
    predictions: float


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Attributes:
      classes: Numbers of the classes with the most rows, ascending; -1 is a class that the training split lacks.
      others: Number of further classes; if it is positive, the last row and column of `counts` are their sums.
      counts: Number of rows; [label, prediction].
    """

    classes: tuple[int, ...]
    others: int
    counts: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ModelPlots:
    """The plots of one model on the whole eval split.

    Attributes:
      predictions: Rows by prediction, ascending, for a binary task, a regression or anomalies.
      residuals: Rows by label - prediction, ascending, for a regression.
      confusion: Confusion matrix for a multiclass task.
      at: Smallest probability of the decision 1, for a binary task.
    """

    predictions: tuple[Bucket, ...] = ()
    residuals: tuple[Bucket, ...] = ()
    confusion: Confusion | None = None
    at: float = AT


@dataclass(frozen=True)
class Plots(JsonResult):
    """The plots of an evaluation.

    Attributes:
      task: The task.
      candidate: Plots of the evaluated model.
      baseline: Plots of the latest blessed model on the same rows; None before the first model is blessed.
    """

    INDENT = None

    task: Task
    candidate: ModelPlots
    baseline: ModelPlots | None


def find_missed_classes(plots: Plots, classes: Sequence[str]) -> MissedClasses | None:
    """Find the classes whose recall is 0. Return None if there are none, or if the model predicts numbers.

    Args:
      plots: Plots of the evaluation. Classes that are not among those with the most rows are not judged.
      classes: Names of the classes by class number. Further classes are named by their numbers.
    """
    model = plots.candidate
    confusion = (
        at_threshold(model.predictions, model.at) if plots.task == "binary" and model.predictions else model.confusion
    )
    if confusion is None:
        return None
    missed = {}
    for index, (number, counts) in enumerate(zip(confusion.classes, confusion.counts, strict=False)):
        rows = sum(counts)
        # No model can recognize labels that the training split lacks; they have the number -1.
        if number >= 0 and rows and not counts[index]:
            missed[classes[number] if number < len(classes) else str(number)] = rows
    return MissedClasses(missed, model.at if plots.task == "binary" else None) if missed else None


def roc(buckets: Sequence[Bucket]) -> list[Point]:
    """Compute the ROC curve, (false positive rate, recall), from the highest threshold to the lowest.

    Returns:
      The points; none if all labels are equal.
    """
    true, false = _above_thresholds(buckets)
    if not true[-1] or not false[-1]:
        return []
    return _points(false / false[-1], true / true[-1])


def precision_recall(buckets: Sequence[Bucket]) -> list[Point]:
    """Compute the precision-recall curve, (recall, precision), from the highest threshold with a prediction above it.

    Returns:
      The points; none if no label is 1.
    """
    true, false = _above_thresholds(buckets)
    if not true[-1]:
        return []
    some = true + false > 0
    return _points(true[some] / true[-1], true[some] / (true + false)[some])


def area(points: Sequence[Point]) -> float:
    """Compute the area under a curve by the trapezoidal rule."""
    x, y = np.array(points, float).reshape(-1, 2).T
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())


def calibration(buckets: Sequence[Bucket], groups: int) -> list[Bucket]:
    """Merge neighbouring buckets.

    Args:
      buckets: Buckets in ascending order.
      groups: Maximum number of results.

    Returns:
      Buckets with about equal numbers of rows.
    """
    rows = np.array([bucket.rows for bucket in buckets], float)
    # Assign a bucket by the middle of its rows, so that a large bucket does not take the group of a small neighbour.
    middle = np.cumsum(rows) - rows / 2
    group = np.minimum((middle * groups / rows.sum()).astype(int), groups - 1)
    return [_merge([buckets[at] for at in np.flatnonzero(group == number)]) for number in np.unique(group)]


def at_threshold(buckets: Sequence[Bucket], at: float = AT) -> Confusion:
    """Compute the confusion matrix of predictions of at least `at`; class 1 is the second row and column."""
    cells = [[0.0, 0.0], [0.0, 0.0]]
    for bucket in buckets:
        positive = int(bucket.low >= at)
        cells[1][positive] += bucket.labels
        cells[0][positive] += bucket.rows - bucket.labels
    return Confusion((0, 1), 0, tuple(tuple(row) for row in cells))


def quantile(buckets: Sequence[Bucket], share: float) -> float:
    """Compute the value below which a share of the rows lies, assuming that rows are evenly distributed in a bucket."""
    rank = share * sum(bucket.rows for bucket in buckets)
    for bucket in buckets:
        if rank <= bucket.rows:
            return bucket.low + (bucket.high - bucket.low) * (rank / bucket.rows if bucket.rows else 0.0)
        rank -= bucket.rows
    return buckets[-1].high


def _above_thresholds(buckets: Sequence[Bucket]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the true and the false positives by threshold, the highest first; shapes [buckets + 1]."""
    labels = np.array([0.0, *(bucket.labels for bucket in reversed(buckets))])
    rows = np.array([0.0, *(bucket.rows for bucket in reversed(buckets))])
    return np.cumsum(labels), np.cumsum(rows - labels)


def _points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> list[Point]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _merge(buckets: Sequence[Bucket]) -> Bucket:
    sums = (sum(getattr(bucket, name) for bucket in buckets) for name in ("rows", "labels", "predictions"))
    return Bucket(buckets[0].low, buckets[-1].high, *sums)
