"""Draws the charts of an evaluation as SVG: ROC, precision and recall, calibration, residuals, confusion matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from components.evaluator import plot_data
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots, Point
from pipeline.inspection.report import svg
from pipeline.inspection.report.svg import format_figure

MODEL, BASELINE = "model", "baseline"

_GROUPS = 10
"""Number of groups of rows in a calibration curve."""
_TAIL = 0.01
"""Share of the residuals at each end that the outermost bars collect, so that the other bars stay readable."""
_SHADES = 6
"""Number of shades that style.css defines for the cells of a matrix."""
_UNKNOWN = -1
"""Class number of labels that are missing in the training split."""


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes:
      name: Caption of the chart.
      chart: The chart as SVG.
      key: Legend entries, one per line of the chart, in the same order.
    """

    name: str
    chart: Markup
    key: list[str]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix as a table.

    Attributes:
      of: Name of the evaluated model: `model` or `baseline`.
      classes: Names of the classes, for rows and columns.
      rows: Cells as (count, shade), one list per class. Shade 0 means that the cell is empty.
      recall: Recall per class. None if the class does not occur, or if the row stands for several classes.
      precision: Precision per class. None if the class is never predicted, or if it stands for several classes.
      at: Smallest probability of a row that counts as predicted 1. None if the most probable class counts.
    """

    of: str
    classes: list[str]
    rows: list[list[tuple[float, int]]]
    recall: list[float | None]
    precision: list[float | None]
    at: float | None = None


@dataclass(frozen=True)
class Residuals:
    """The histogram of residuals: label minus prediction.

    Attributes:
      over: Range of the charts. The first and the last bar include all values outside this range.
      bars: Charts by name: `model` and, if there is one, `baseline`.
      figures: Quantiles of the model's residuals as texts (name of the quantile, value).
    """

    over: tuple[float, float]
    bars: dict[str, Markup]
    figures: list[tuple[str, str]]


@dataclass(frozen=True)
class EvaluationCharts:
    """All charts of an evaluation.

    Attributes:
      charts: The line charts.
      residuals: Residuals of a regression. None for other tasks.
      matrices: Confusion matrices of the model and, if there is one, of the baseline. Empty for a regression.
      baseline_differs: Whether the baseline's matrix is left out because the baseline has different classes.
    """

    charts: list[Chart] = field(default_factory=list)
    residuals: Residuals | None = None
    matrices: list[Matrix] = field(default_factory=list)
    baseline_differs: bool = False


def draw(plots: Plots, metrics: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> EvaluationCharts:
    """Draw the charts of an evaluation.

    Args:
      plots: Data of the charts.
      metrics: Metrics of the whole split for `model` and `baseline`. The legends take the areas under curves from them.
      classes: Names of the classes by class number. Further classes are shown by their numbers.
    """
    models = {MODEL: plots.candidate} | ({BASELINE: plots.baseline} if plots.baseline else {})
    if plots.task == "multiclass":
        confusions = {name: model.confusion for name, model in models.items() if model.confusion}
        matrices = [_make_matrix(name, confusion, classes) for name, confusion in confusions.items()]
        return EvaluationCharts(
            matrices=matrices, baseline_differs=bool(metrics.get(BASELINE)) and BASELINE not in confusions
        )
    buckets = {name: model.predictions for name, model in models.items() if model.predictions}
    if MODEL not in buckets:
        return EvaluationCharts()
    if plots.task == "regression":
        return EvaluationCharts(
            charts=[_draw_calibration(buckets, "Label by prediction", 2 * _GROUPS)], residuals=_draw_residuals(models)
        )
    if plots.task == "anomaly":
        # A score is not the probability of a label.
        return EvaluationCharts(charts=_draw_threshold_curves(buckets, metrics))
    return EvaluationCharts(
        charts=[
            *_draw_threshold_curves(buckets, metrics),
            _draw_calibration(buckets, "Calibration: label by probability", _GROUPS),
        ],
        matrices=[
            replace(_make_matrix(name, plot_data.at_threshold(buckets[name], model.at), classes), at=model.at)
            for name, model in models.items()
            if name in buckets
        ],
    )


def calibration_rows(plots: Plots) -> list[tuple[float, float, float]]:
    """Return the groups of the model's calibration curve as (mean prediction, mean label, number of rows)."""
    return [
        (group.predictions / group.rows, group.labels / group.rows, group.rows)
        for group in plot_data.calibration(plots.candidate.predictions, _GROUPS)
    ]


def _draw_threshold_curves(
    buckets: Mapping[str, Sequence[Bucket]], metrics: Mapping[str, Mapping[str, float]]
) -> list[Chart]:
    """Draw the ROC curve and the precision-recall curve. Neither is defined if all labels are equal."""
    positives = sum(bucket.labels for bucket in buckets[MODEL])
    rows = sum(bucket.rows for bucket in buckets[MODEL])
    if not 0 < positives < rows:
        return []
    positive_share = positives / rows
    return [
        _draw_lines(
            "ROC: recall by false positive rate",
            {name: plot_data.roc(buckets_of_model) for name, buckets_of_model in buckets.items()},
            ("chance", [(0.0, 0.0), (1.0, 1.0)]),
            "false positive rate",
            _make_area_label("auc", metrics, plot_data.area),
        ),
        _draw_lines(
            "Precision by recall",
            {name: plot_data.precision_recall(buckets_of_model) for name, buckets_of_model in buckets.items()},
            ("chance", [(0.0, positive_share), (1.0, positive_share)]),
            "recall",
            _make_area_label("auc_precision_recall", metrics, None),
        ),
    ]


def _make_area_label(
    metric: str, metrics: Mapping[str, Mapping[str, float]], compute_area: Callable[[Sequence[Point]], float] | None
) -> Callable[[str, Sequence[Point]], str]:
    """Return a function that labels a curve with the area under it.

    Args:
      metric: Name of the metric that is the area under the curve.
      metrics: Metrics of the whole split for `model` and `baseline`.
      compute_area: Function that computes the area from the points if the metric was not evaluated. If None, the
        area is left out in this case.
    """

    def label(name: str, points: Sequence[Point]) -> str:
        area = metrics.get(name, {}).get(metric)
        area = compute_area(points) if area is None and compute_area else area
        return name if area is None else f"{name}: area {format_figure(area)}"

    return label


def _draw_calibration(buckets: Mapping[str, Sequence[Bucket]], name: str, groups: int) -> Chart:
    curves = {
        model: [
            (group.predictions / group.rows, group.labels / group.rows)
            for group in plot_data.calibration(buckets_of_model, groups)
        ]
        for model, buckets_of_model in buckets.items()
    }
    predictions = [prediction for points in curves.values() for prediction, _ in points]
    ideal = ("as predicted", [(end, end) for end in (min(predictions), max(predictions))])
    return _draw_lines(name, curves, ideal, "mean prediction", lambda model, _: model)


def _draw_lines(
    name: str,
    curves: dict[str, list[Point]],
    reference: tuple[str, list[Point]],
    x_axis: str,
    label: Callable[[str, Sequence[Point]], str],
) -> Chart:
    key = [label(model, points) for model, points in curves.items()]
    chart = svg.draw_lines(
        {**curves, reference[0]: reference[1]}, name, x_axis, without_dots=(reference[0],), description="; ".join(key)
    )
    return Chart(name, chart, [*key, reference[0]])


def _draw_residuals(models: Mapping[str, ModelPlots]) -> Residuals | None:
    """Draw the histograms of residuals over the same range. Return None if they were not recorded."""
    residuals = {name: model.residuals for name, model in models.items() if model.residuals}
    if MODEL not in residuals:
        return None
    bins = {
        name: [(bucket.low, bucket.high, bucket.rows / sum(bucket.rows for bucket in buckets)) for bucket in buckets]
        for name, buckets in residuals.items()
    }
    ends = [plot_data.quantile(buckets, share) for buckets in residuals.values() for share in (_TAIL, 1 - _TAIL)]
    over = min(ends), max(ends)
    return Residuals(
        over,
        {
            name: svg.draw_histogram(bins_of_model, over, f"Residuals of the {name}")
            for name, bins_of_model in bins.items()
        },
        [
            (name, format_figure(plot_data.quantile(residuals[MODEL], share)))
            for name, share in (("5 % below", 0.05), ("half below", 0.5), ("95 % below", 0.95))
        ],
    )


def _make_matrix(of: str, confusion: Confusion, classes: Sequence[str]) -> Matrix:
    """Convert a confusion matrix to a table.

    Classes with numeric names come first, in numerical order, then the other classes in alphabetical order. The last
    row and column hold the sum of the classes that were not recorded separately, if there are any.
    """
    names = [_name_class(number, classes) for number in confusion.classes]
    order = sorted(range(len(names)), key=lambda index: _make_sort_key(names[index]))
    order += range(len(names), len(confusion.counts))
    rows = []
    recall: list[float | None] = []
    precision: list[float | None] = []
    for index in order:
        counts = confusion.counts[index]
        rows.append([(counts[column], _choose_shade(counts[column], sum(counts))) for column in order])
        is_one_class = index < len(names) and confusion.classes[index] != _UNKNOWN
        predicted = sum(row[index] for row in confusion.counts)
        for shares, total in ((recall, sum(counts)), (precision, predicted)):
            shares.append(counts[index] / total if is_one_class and total else None)
    other_classes = [f"{confusion.others:,} others"] if confusion.others else []
    return Matrix(of, [names[index] for index in order[: len(names)]] + other_classes, rows, recall, precision)


def _make_sort_key(name: str) -> tuple[bool, int, str]:
    # Comparing the lengths first sorts decimal numbers by value.
    is_number = name.isdecimal()
    return not is_number, len(name) if is_number else 0, name


def _name_class(number: int, classes: Sequence[str]) -> str:
    if number == _UNKNOWN:
        return "(not in training)"
    return classes[number] if number < len(classes) else str(number)


def _choose_shade(count: float, total: float) -> int:
    """Return the shade of a cell: 0 if it is empty, otherwise from 1 upwards by its share of the row."""
    return 0 if not count else 1 + min(int(count / total * (_SHADES - 1)), _SHADES - 2)


def format_table(matrix: Matrix) -> list[list[str]]:
    """Return a matrix as rows of texts, starting with the heading."""
    heading = ["label", *(f"as {name}" for name in matrix.classes)]
    return [
        heading,
        *(
            [name, *(format_figure(count) for count, _ in row)]
            for name, row in zip(matrix.classes, matrix.rows, strict=True)
        ),
    ]
