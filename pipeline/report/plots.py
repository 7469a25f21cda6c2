"""The charts of an evaluation: how well a model tells classes apart or meets numbers, beside the model before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from components.evaluator import plots
from components.evaluator.plots import Bucket, Confusion, Drawn, Plots, Point
from pipeline.report import charts
from pipeline.report.charts import figure

MODEL, BASELINE = "model", "baseline"

_GROUPS = 10
"""Of rows, in a curve of labels by predictions."""
_BEYOND = 0.01
"""How much of the residuals at either end is in the outermost bars, so that it does not press the rest flat."""
_SHADES = 6
"""How many the page's style has for a cell of a matrix."""
_UNKNOWN = -1
"""The number of a class that the training split did not have."""


@dataclass(frozen=True)
class Chart:
    """Lines in one figure.

    Attributes:
      name: its caption.
      chart: it.
      key: what is said of each line, in order.
    """

    name: str
    chart: Markup
    key: list[str]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix as a table.

    Attributes:
      of: the model or the baseline.
      classes: their names, for rows and columns alike.
      rows: for each class, of every cell the count and the shade, from 0 for none.
      recall: of each class; None where it has no row, or is several.
    """

    of: str
    classes: list[str]
    rows: list[list[tuple[float, int]]]
    recall: list[float | None]


@dataclass(frozen=True)
class Residuals:
    """How far predictions are off, as bars.

    Attributes:
      over: from where to where they are drawn; the first and the last bar hold what lies beyond.
      bars: model or baseline → the chart.
      figures: what is below the bars of the model: share of the rows → the residual that so many lie below.
    """

    over: tuple[float, float]
    bars: dict[str, Markup]
    figures: list[tuple[str, str]]


@dataclass(frozen=True)
class Shown:
    """All that is shown of an evaluation's plots.

    Attributes:
      charts: the lines.
      residuals: of a regression.
      matrices: of the model, and of the baseline.
      at: the probability that decides in them; None where the most probable class does.
      baseline_differs: whether the baseline's matrix is left out, as its classes are others.
    """

    charts: list[Chart] = field(default_factory=list)
    residuals: Residuals | None = None
    matrices: list[Matrix] = field(default_factory=list)
    at: float | None = None
    baseline_differs: bool = False


def shown(told: Plots, metrics: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> Shown:
    """The charts of an evaluation.

    Args:
      told: what they are drawn from.
      metrics: model and baseline → the metrics of the whole split, for the areas under the curves.
      classes: their names by number, as far as they are known.
    """
    sides = {MODEL: told.candidate} | ({BASELINE: told.baseline} if told.baseline else {})
    if told.task == "multiclass":
        found = {name: side.confusion for name, side in sides.items() if side.confusion}
        matrices = [_matrix(name, each, classes) for name, each in found.items()]
        return Shown(matrices=matrices, baseline_differs=bool(metrics.get(BASELINE)) and BASELINE not in found)
    buckets = {name: side.predictions for name, side in sides.items() if side.predictions}
    if MODEL not in buckets:
        return Shown()
    if told.task == "regression":
        return Shown(charts=[_calibration(buckets, "Label by prediction", 2 * _GROUPS)], residuals=_residuals(sides))
    return Shown(
        charts=[
            *_ways(buckets, metrics),
            _calibration(buckets, "Calibration: label by probability", _GROUPS),
        ],
        matrices=[_matrix(name, plots.at_threshold(each), classes) for name, each in buckets.items()],
        at=plots.AT,
    )


def calibration_rows(told: Plots) -> list[tuple[float, float, float]]:
    """(mean prediction, mean label, rows) of the groups that the model's calibration is drawn from."""
    return [
        (each.predictions / each.rows, each.labels / each.rows, each.rows)
        for each in plots.calibration(told.candidate.predictions, _GROUPS)
    ]


def _ways(buckets: Mapping[str, Sequence[Bucket]], metrics: Mapping[str, Mapping[str, float]]) -> list[Chart]:
    """ROC and precision by recall; neither where all labels are alike."""
    first = buckets[MODEL]
    positives, rows = sum(each.labels for each in first), sum(each.rows for each in first)
    if not 0 < positives < rows:
        return []
    share = positives / rows
    return [
        _lines(
            "ROC: recall by false positive rate",
            {name: plots.roc(each) for name, each in buckets.items()},
            ("chance", [(0.0, 0.0), (1.0, 1.0)]),
            "false positive rate",
            _area("auc", metrics, plots.area),
        ),
        _lines(
            "Precision by recall",
            {name: plots.precision_recall(each) for name, each in buckets.items()},
            ("chance", [(0.0, share), (1.0, share)]),
            "recall",
            _area("auc_precision_recall", metrics, None),
        ),
    ]


def _area(
    metric: str, metrics: Mapping[str, Mapping[str, float]], of: Callable[[Sequence[Point]], float] | None
) -> Callable[[str, Sequence[Point]], str]:
    """What is said of a curve: the area below it as it was measured, or else as it is drawn."""

    def told(name: str, points: Sequence[Point]) -> str:
        value = metrics.get(name, {}).get(metric)
        value = of(points) if value is None and of else value
        return name if value is None else f"{name}: area {figure(value)}"

    return told


def _calibration(buckets: Mapping[str, Sequence[Bucket]], name: str, groups: int) -> Chart:
    curves = {
        side: [(each.predictions / each.rows, each.labels / each.rows) for each in plots.calibration(several, groups)]
        for side, several in buckets.items()
    }
    ends = [x for points in curves.values() for x, _ in points]
    ideal = ("as predicted", [(each, each) for each in (min(ends), max(ends))])
    return _lines(name, curves, ideal, "mean prediction", lambda side, _: side)


def _lines(
    name: str,
    curves: dict[str, list[Point]],
    against: tuple[str, list[Point]],
    across: str,
    told: Callable[[str, Sequence[Point]], str],
) -> Chart:
    key = [told(side, points) for side, points in curves.items()]
    chart = charts.lines(
        {**curves, against[0]: against[1]}, name, across, bare=(against[0],), description="; ".join(key)
    )
    return Chart(name, chart, [*key, against[0]])


def _residuals(sides: Mapping[str, Drawn]) -> Residuals | None:
    buckets = {name: side.residuals for name, side in sides.items() if side.residuals}
    if MODEL not in buckets:
        return None
    bins = {
        name: [(each.low, each.high, each.rows / sum(one.rows for one in several)) for each in several]
        for name, several in buckets.items()
    }
    ends = [plots.quantile(several, share) for several in buckets.values() for share in (_BEYOND, 1 - _BEYOND)]
    over = min(ends), max(ends)
    return Residuals(
        over,
        {name: charts.histogram(several, over, f"Residuals of the {name}") for name, several in bins.items()},
        [
            (told, figure(plots.quantile(buckets[MODEL], share)))
            for told, share in (("5 % below", 0.05), ("half below", 0.5), ("95 % below", 0.95))
        ],
    )


def _matrix(of: str, told: Confusion, classes: Sequence[str]) -> Matrix:
    """The matrix with its classes by name, numbers by size; the others stay last."""
    names = [_class(each, classes) for each in told.classes]
    order = sorted(range(len(names)), key=lambda at: _by_name(names[at]))
    order += range(len(names), len(told.counts))
    rows, recall = [], []
    for at in order:
        total = sum(told.counts[at])
        rows.append([(told.counts[at][place], _shade(told.counts[at][place], total)) for place in order])
        known = total and at < len(names) and told.classes[at] != _UNKNOWN
        recall.append(told.counts[at][at] / total if known else None)
    others = [f"{told.others:,} others"] if told.others else []
    return Matrix(of, [names[at] for at in order[: len(names)]] + others, rows, recall)


def _by_name(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal()
    return not number, len(name) if number else 0, name


def _class(number: int, classes: Sequence[str]) -> str:
    if number == _UNKNOWN:
        return "(not in training)"
    return classes[number] if number < len(classes) else str(number)


def _shade(count: float, total: float) -> int:
    """None for none, the least for hardly any."""
    return 0 if not count else 1 + min(int(count / total * (_SHADES - 1)), _SHADES - 2)


def table(matrix: Matrix) -> list[list[Any]]:
    """A matrix as rows of texts, the heading first."""
    head = ["label", *(f"as {name}" for name in matrix.classes)]
    return [
        head,
        *([name, *(figure(count) for count, _ in row)] for name, row in zip(matrix.classes, matrix.rows, strict=True)),
    ]
