"""The charts of an evaluation: ROC, precision by recall, calibration, residuals and confusion matrices, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from components.evaluator import plot_data
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots, Point
from pipeline.inspection.report import svg
from pipeline.inspection.report.svg import figure

MODEL, BASELINE = "model", "baseline"

_GROUPS = 10
"""Groups of rows in a calibration curve."""
_TAIL = 0.01
"""Share of the residuals at each end that is in the outermost bars, so that the other bars stay readable."""
_SHADES = 6
"""Number of shades for a cell of a matrix in style.css."""
_UNKNOWN = -1
"""The number of a class that is not in the training split."""


@dataclass(frozen=True)
class Chart:
    """Lines in one figure.

    Attributes:
      name: its caption.
      chart: the SVG.
      key: the legend's text of each line, in order.
    """

    name: str
    chart: Markup
    key: list[str]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix as a table.

    Attributes:
      of: the model or the baseline.
      classes: names of the rows and of the columns.
      rows: of each class the count and the shade (0: empty) of every cell.
      recall: of each class; None where it has no rows, or stands for several classes.
      precision: of each class; None where it is never predicted, or stands for several classes.
    """

    of: str
    classes: list[str]
    rows: list[list[tuple[float, int]]]
    recall: list[float | None]
    precision: list[float | None]


@dataclass(frozen=True)
class Residuals:
    """The histogram of residuals: label minus prediction.

    Attributes:
      over: the range of the chart; the first and the last bar include all values outside of it.
      bars: model or baseline → the chart.
      figures: of the model, share of the rows → the residual that this share of rows is below, as texts.
    """

    over: tuple[float, float]
    bars: dict[str, Markup]
    figures: list[tuple[str, str]]


@dataclass(frozen=True)
class EvaluationCharts:
    """All charts of an evaluation.

    Attributes:
      charts: the line charts.
      residuals: of a regression.
      matrices: of the model, and of the baseline.
      at: the probability from which a row of the matrices is predicted as 1; None: the most probable class.
      baseline_differs: whether the baseline's matrix is left out, because its classes differ.
    """

    charts: list[Chart] = field(default_factory=list)
    residuals: Residuals | None = None
    matrices: list[Matrix] = field(default_factory=list)
    at: float | None = None
    baseline_differs: bool = False


def draw(plots: Plots, metrics: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> EvaluationCharts:
    """Draws the charts of an evaluation.

    Args:
      plots: the data of the charts.
      metrics: model and baseline → the metrics of the whole split, for the areas under the curves.
      classes: names by number; classes without a name keep their number.
    """
    models = {MODEL: plots.candidate} | ({BASELINE: plots.baseline} if plots.baseline else {})
    if plots.task == "multiclass":
        confusions = {name: each.confusion for name, each in models.items() if each.confusion}
        matrices = [_matrix(name, each, classes) for name, each in confusions.items()]
        return EvaluationCharts(
            matrices=matrices, baseline_differs=bool(metrics.get(BASELINE)) and BASELINE not in confusions
        )
    buckets = {name: each.predictions for name, each in models.items() if each.predictions}
    if MODEL not in buckets:
        return EvaluationCharts()
    if plots.task == "regression":
        return EvaluationCharts(
            charts=[_calibration(buckets, "Label by prediction", 2 * _GROUPS)], residuals=_residuals(models)
        )
    return EvaluationCharts(
        charts=[
            *_threshold_curves(buckets, metrics),
            _calibration(buckets, "Calibration: label by probability", _GROUPS),
        ],
        matrices=[_matrix(name, plot_data.at_threshold(each), classes) for name, each in buckets.items()],
        at=plot_data.AT,
    )


def calibration_rows(plots: Plots) -> list[tuple[float, float, float]]:
    """Returns (mean prediction, mean label, rows) of the groups of the model's calibration curve."""
    return [
        (each.predictions / each.rows, each.labels / each.rows, each.rows)
        for each in plot_data.calibration(plots.candidate.predictions, _GROUPS)
    ]


def _threshold_curves(
    buckets: Mapping[str, Sequence[Bucket]], metrics: Mapping[str, Mapping[str, float]]
) -> list[Chart]:
    """Draws ROC and precision by recall; neither where all labels are equal."""
    first = buckets[MODEL]
    positives, rows = sum(each.labels for each in first), sum(each.rows for each in first)
    if not 0 < positives < rows:
        return []
    share = positives / rows
    return [
        _lines(
            "ROC: recall by false positive rate",
            {name: plot_data.roc(each) for name, each in buckets.items()},
            ("chance", [(0.0, 0.0), (1.0, 1.0)]),
            "false positive rate",
            _area("auc", metrics, plot_data.area),
        ),
        _lines(
            "Precision by recall",
            {name: plot_data.precision_recall(each) for name, each in buckets.items()},
            ("chance", [(0.0, share), (1.0, share)]),
            "recall",
            _area("auc_precision_recall", metrics, None),
        ),
    ]


def _area(
    metric: str, metrics: Mapping[str, Mapping[str, float]], of: Callable[[Sequence[Point]], float] | None
) -> Callable[[str, Sequence[Point]], str]:
    """Returns the legend of a curve: the area under it as measured, or else as drawn."""

    def label(name: str, points: Sequence[Point]) -> str:
        value = metrics.get(name, {}).get(metric)
        value = of(points) if value is None and of else value
        return name if value is None else f"{name}: area {figure(value)}"

    return label


def _calibration(buckets: Mapping[str, Sequence[Bucket]], name: str, groups: int) -> Chart:
    curves = {
        model: [
            (each.predictions / each.rows, each.labels / each.rows) for each in plot_data.calibration(of_model, groups)
        ]
        for model, of_model in buckets.items()
    }
    ends = [x for points in curves.values() for x, _ in points]
    ideal = ("as predicted", [(each, each) for each in (min(ends), max(ends))])
    return _lines(name, curves, ideal, "mean prediction", lambda model, _: model)


def _lines(
    name: str,
    curves: dict[str, list[Point]],
    reference: tuple[str, list[Point]],
    x_axis: str,
    label: Callable[[str, Sequence[Point]], str],
) -> Chart:
    key = [label(model, points) for model, points in curves.items()]
    chart = svg.lines(
        {**curves, reference[0]: reference[1]}, name, x_axis, without_dots=(reference[0],), description="; ".join(key)
    )
    return Chart(name, chart, [*key, reference[0]])


def _residuals(models: Mapping[str, ModelPlots]) -> Residuals | None:
    buckets = {name: each.residuals for name, each in models.items() if each.residuals}
    if MODEL not in buckets:
        return None
    bins = {
        name: [(each.low, each.high, each.rows / sum(one.rows for one in of_model)) for each in of_model]
        for name, of_model in buckets.items()
    }
    ends = [plot_data.quantile(of_model, share) for of_model in buckets.values() for share in (_TAIL, 1 - _TAIL)]
    over = min(ends), max(ends)
    return Residuals(
        over,
        {name: svg.histogram(of_model, over, f"Residuals of the {name}") for name, of_model in bins.items()},
        [
            (name, figure(plot_data.quantile(buckets[MODEL], share)))
            for name, share in (("5 % below", 0.05), ("half below", 0.5), ("95 % below", 0.95))
        ],
    )


def _matrix(of: str, confusion: Confusion, classes: Sequence[str]) -> Matrix:
    """Returns the matrix with its classes sorted by name, numbers by size, and the sum of other classes last."""
    names = [_class_name(each, classes) for each in confusion.classes]
    order = sorted(range(len(names)), key=lambda index: _sort_key(names[index]))
    order += range(len(names), len(confusion.counts))
    rows = []
    recall: list[float | None] = []
    precision: list[float | None] = []
    for index in order:
        counts = confusion.counts[index]
        rows.append([(counts[column], _shade(counts[column], sum(counts))) for column in order])
        is_one_class = index < len(names) and confusion.classes[index] != _UNKNOWN
        for shares, total in ((recall, sum(counts)), (precision, sum(each[index] for each in confusion.counts))):
            shares.append(counts[index] / total if is_one_class and total else None)
    others = [f"{confusion.others:,} others"] if confusion.others else []
    return Matrix(of, [names[index] for index in order[: len(names)]] + others, rows, recall, precision)


def _sort_key(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal()
    return not number, len(name) if number else 0, name


def _class_name(number: int, classes: Sequence[str]) -> str:
    if number == _UNKNOWN:
        return "(not in training)"
    return classes[number] if number < len(classes) else str(number)


def _shade(count: float, total: float) -> int:
    """Returns 0 for an empty cell, else a shade from 1 by the cell's share of its row."""
    return 0 if not count else 1 + min(int(count / total * (_SHADES - 1)), _SHADES - 2)


def table(matrix: Matrix) -> list[list[str]]:
    """Returns a matrix as rows of texts, the heading first."""
    head = ["label", *(f"as {name}" for name in matrix.classes)]
    return [
        head,
        *([name, *(figure(count) for count, _ in row)] for name, row in zip(matrix.classes, matrix.rows, strict=True)),
    ]
