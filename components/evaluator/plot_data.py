"""The data of an evaluation's charts, as dataclasses and as the file `plots.json` next to the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from components.base.config_section import Task

FILE = "plots.json"
AT = 0.5
"""The smallest probability that counts as positive, as in TFMA's accuracy, precision and recall."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Bucket:
    """The rows whose predictions (or residuals) are between two bounds.

    Attributes:
      low: lower bound, inclusive.
      high: upper bound, exclusive.
      rows: number of rows.
      labels: the sum of their labels; 0 for residuals.
      predictions: the sum of their predictions, or of their residuals.
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
      classes: the class numbers with the most rows, ascending; -1 is a class that the training split does not have.
      others: number of other classes; if there are any, the last row and the last column of `counts` are their sum.
      counts: number of rows, [label, prediction].
    """

    classes: tuple[int, ...]
    others: int
    counts: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ModelPlots:
    """The plots of one model on the whole eval split.

    Attributes:
      predictions: rows by prediction, ascending; of a binary task or a regression.
      residuals: rows by label - prediction, ascending; of a regression.
      confusion: confusion matrix of a multiclass task.
    """

    predictions: tuple[Bucket, ...] = ()
    residuals: tuple[Bucket, ...] = ()
    confusion: Confusion | None = None


@dataclass(frozen=True)
class Plots:
    """The plots of an evaluation.

    Attributes:
      task: binary, multiclass or regression.
      candidate: plots of the evaluated model.
      baseline: plots of the latest blessed model on the same rows; None without one.
    """

    task: Task
    candidate: ModelPlots
    baseline: ModelPlots | None

    def to_json(self) -> str:
        """Return the content of `plots.json`."""
        return json.dumps(asdict(self), allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plots:
        """Parse the result of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        baseline = fields["baseline"]
        return cls(
            fields["task"], _model_plots(fields["candidate"]), None if baseline is None else _model_plots(baseline)
        )


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
      buckets: in ascending order.
      groups: greatest number of results.

    Returns:
      Buckets with about equal numbers of rows.
    """
    rows = np.array([each.rows for each in buckets], float)
    # By the middle of its rows, so that a large bucket does not take the group of a small neighbour.
    middle = np.cumsum(rows) - rows / 2
    group = np.minimum((middle * groups / rows.sum()).astype(int), groups - 1)
    return [_merge([buckets[at] for at in np.flatnonzero(group == each)]) for each in np.unique(group)]


def at_threshold(buckets: Sequence[Bucket]) -> Confusion:
    """Compute the confusion matrix of predictions of at least AT; class 1 is the second row and column."""
    cells = [[0.0, 0.0], [0.0, 0.0]]
    for each in buckets:
        positive = int(each.low >= AT)
        cells[1][positive] += each.labels
        cells[0][positive] += each.rows - each.labels
    return Confusion((0, 1), 0, tuple(tuple(row) for row in cells))


def quantile(buckets: Sequence[Bucket], share: float) -> float:
    """Compute the value with this share of the rows below it; the rows of a bucket count as evenly distributed."""
    rank = share * sum(each.rows for each in buckets)
    for each in buckets:
        if rank <= each.rows:
            return each.low + (each.high - each.low) * (rank / each.rows if each.rows else 0.0)
        rank -= each.rows
    return buckets[-1].high


def _above_thresholds(buckets: Sequence[Bucket]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return true positives and false positives of each threshold, the highest first; shapes [buckets + 1]."""
    labels = np.array([0.0, *(each.labels for each in reversed(buckets))])
    rows = np.array([0.0, *(each.rows for each in reversed(buckets))])
    return np.cumsum(labels), np.cumsum(rows - labels)


def _points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> list[Point]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _merge(buckets: Sequence[Bucket]) -> Bucket:
    sums = (sum(getattr(each, name) for each in buckets) for name in ("rows", "labels", "predictions"))
    return Bucket(buckets[0].low, buckets[-1].high, *sums)


def _model_plots(fields: dict[str, Any]) -> ModelPlots:
    confusion = fields["confusion"]
    return ModelPlots(
        tuple(Bucket(**each) for each in fields["predictions"]),
        tuple(Bucket(**each) for each in fields["residuals"]),
        None
        if confusion is None
        else Confusion(tuple(confusion["classes"]), confusion["others"], tuple(map(tuple, confusion["counts"]))),
    )
