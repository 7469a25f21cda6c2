"""What the charts of an evaluation are drawn from, as plain records and as the file `plots.json` beside the verdict."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.section import Task

FILE = "plots.json"
AT = 0.5
"""The probability from which on a prediction counts as positive, in TFMA's accuracy, precision and recall too."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Bucket:
    """The rows whose predictions (or residuals) lie between two values.

    Attributes:
      low: the least value that belongs to it.
      high: the least that belongs to it no more.
      rows: how many.
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
    """How often which class was taken for which.

    Attributes:
      classes: the numbers of those with the most rows, in order; -1 is any that the training split did not have.
      others: how many more there are; together they are the last row and the last column of `counts`, if there are any.
      counts: rows, [label, prediction].
    """

    classes: tuple[int, ...]
    others: int
    counts: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Drawn:
    """The plots of one model, over the whole eval split.

    Attributes:
      predictions: rows by prediction, least first; of a binary task and of a regression.
      residuals: rows by label - prediction, least first; of a regression.
      confusion: of a multiclass task.
    """

    predictions: tuple[Bucket, ...] = ()
    residuals: tuple[Bucket, ...] = ()
    confusion: Confusion | None = None


@dataclass(frozen=True)
class Plots:
    """The plots of an evaluation.

    Attributes:
      task: binary, multiclass or regression.
      candidate: of the model that is judged.
      baseline: of the latest blessed model, on the same rows, if there is one and its plots mean the same.
    """

    task: Task
    candidate: Drawn
    baseline: Drawn | None

    def to_json(self) -> str:
        """The content of `plots.json`."""
        return json.dumps(asdict(self), allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plots:
        """Reads what `to_json` has written."""
        told: dict[str, Any] = json.loads(text)
        baseline = told["baseline"]
        return cls(told["task"], _drawn(told["candidate"]), None if baseline is None else _drawn(baseline))


def roc(buckets: Sequence[Bucket]) -> list[Point]:
    """The ROC curve, (false positive rate, recall), from a threshold above all predictions to one below them.

    Empty where all labels are alike.
    """
    positives = sum(each.labels for each in buckets)
    negatives = sum(each.rows for each in buckets) - positives
    if not positives or not negatives:
        return []
    return [(false / negatives, true / positives) for true, false in _from_above(buckets)]


def precision_recall(buckets: Sequence[Bucket]) -> list[Point]:
    """The curve of precision over recall, (recall, precision), from the highest threshold with a prediction above it.

    Empty where no label is 1.
    """
    positives = sum(each.labels for each in buckets)
    if not positives:
        return []
    return [(true / positives, true / (true + false)) for true, false in _from_above(buckets) if true + false]


def area(points: Sequence[Point]) -> float:
    """The area under a curve, by trapezoids."""
    return sum((x - w) * (y + v) / 2 for (w, v), (x, y) in itertools.pairwise(points))


def calibration(buckets: Sequence[Bucket], groups: int) -> list[Bucket]:
    """The same rows in at most so many groups, of about equally many rows each; mean label by mean prediction."""
    total = sum(each.rows for each in buckets)
    found: list[list[Bucket]] = [[] for _ in range(groups)]
    before = 0.0
    for each in buckets:
        # By the middle of its rows: neighbours of very different sizes do not take each other's place.
        found[min(int((before + each.rows / 2) * groups / total), groups - 1)].append(each)
        before += each.rows
    return [_together(several) for several in found if several]


def at_threshold(buckets: Sequence[Bucket]) -> Confusion:
    """Labels by whether the prediction is at least AT; class 1 is the second row and column."""
    cells = [[0.0, 0.0], [0.0, 0.0]]
    for each in buckets:
        positive = int(each.low >= AT)
        cells[1][positive] += each.labels
        cells[0][positive] += each.rows - each.labels
    return Confusion((0, 1), 0, tuple(tuple(several) for several in cells))


def quantile(buckets: Sequence[Bucket], share: float) -> float:
    """The value that so much of the rows lie below; within a bucket they are taken as spread evenly."""
    wanted = share * sum(each.rows for each in buckets)
    for each in buckets:
        if wanted <= each.rows:
            return each.low + (each.high - each.low) * (wanted / each.rows if each.rows else 0.0)
        wanted -= each.rows
    return buckets[-1].high


def _from_above(buckets: Sequence[Bucket]) -> Iterable[tuple[float, float]]:
    """(true positives, false positives) of each threshold, the highest first."""
    true = false = 0.0
    yield true, false
    for each in reversed(buckets):
        true += each.labels
        false += each.rows - each.labels
        yield true, false


def _together(several: Sequence[Bucket]) -> Bucket:
    sums = (sum(getattr(each, name) for each in several) for name in ("rows", "labels", "predictions"))
    return Bucket(several[0].low, several[-1].high, *sums)


def _drawn(told: dict[str, Any]) -> Drawn:
    confusion = told["confusion"]
    return Drawn(
        tuple(Bucket(**each) for each in told["predictions"]),
        tuple(Bucket(**each) for each in told["residuals"]),
        None
        if confusion is None
        else Confusion(tuple(confusion["classes"]), confusion["others"], tuple(map(tuple, confusion["counts"]))),
    )
