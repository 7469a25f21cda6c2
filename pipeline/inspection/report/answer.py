"""The answers that a report begins with: what is predicted, whether the model is good, why, and where it fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.evaluator.config import Better, label_of, metric
from components.evaluator.verdict import ConstantMetric, SliceMetrics, reference_of
from pipeline.core.nodes import NODES_WITH_RESULT
from pipeline.core.records import BLESSED, NOT_EVALUATED, RunSummary
from pipeline.inspection.evaluation_tables import format_slice_name, split_metric_names
from pipeline.inspection.report.svg import format_figure

if TYPE_CHECKING:
    from pipeline.inspection.report.content import Content

_METRICS = 4
_CHECKS = 4
_TOP = 5
_LEAST_SHARE = 0.005
"""Share of the importance below which a column is not named; it would be shown as 0 %."""
_WORST = 3
_CHANGES = 8
_ARROW = " \N{RIGHTWARDS ARROW} "


@dataclass(frozen=True)
class Measurement:
    """A metric of the whole eval split, with what it is compared with.

    Attributes:
      metric: Name of the metric.
      better: Which values are better, in words. Empty if it is unknown.
      value: Value of the model.
      interval: 95 % confidence interval of the value. None if it was not computed.
      constant: Value of the best constant prediction, or of the seasonal naive forecast. None if it was not computed.
      linear: Value of a linear model. None if it was not computed.
      baseline: Value of the latest blessed model. None if there was none.
      judgement: The comparisons in words.
    """

    metric: str
    better: str
    value: float
    interval: tuple[float, float] | None
    constant: float | None
    linear: float | None
    baseline: float | None
    judgement: str


@dataclass(frozen=True)
class Remark:
    """A sentence with a state, such as `pass` or `warning`, that the page shows as a sign and a colour."""

    state: str
    text: str


@dataclass(frozen=True)
class Answer:
    """The answers about a run.

    Attributes:
      predicts: What the model predicts. Empty if the config was not recorded.
      measurements: The metrics with a bound, then others, at most four.
      reference: What the metrics are compared with: the best constant, or the seasonal naive forecast.
      reasons: Why the model is blessed, rejected or missing.
      uses: Columns with their share of the importance, the most important first. Empty if it was not measured.
      failures: Slices that are clearly worse than the whole, and classes that the model never recognizes.
      warnings: All warnings of the run.
      before: ID of the run that trained the model before. None if there is none.
      changes: What differs from that run.
    """

    predicts: str
    measurements: list[Measurement]
    reference: str
    reasons: list[Remark]
    uses: list[tuple[str, float]]
    failures: list[Remark]
    warnings: list[str]
    before: str | None
    changes: list[str]


def make_answer(content: Content) -> Answer:
    """Return the answers about a run."""
    summary = content.summary
    return Answer(
        predicts=_describe_prediction(content.config, len(summary.column_types)),
        measurements=[_measure(summary, name) for name in _choose_metrics(summary)],
        reference=reference_of(summary.constant),
        reasons=list(_list_reasons(content.run, summary)),
        uses=_list_important_columns(content),
        failures=[*_list_worse_slices(summary), *_list_missed_classes(summary)],
        warnings=[*summary.describe_data_warnings(), *summary.warnings, *_list_findings(summary)],
        before=content.trained_before.run if content.trained_before else None,
        changes=list(_list_changes(content)),
    )


def _describe_prediction(config: Any, columns: int) -> str:
    data = config.get("data") if isinstance(config, dict) else None
    if not isinstance(data, dict):
        return ""
    if data.get("task") == "anomaly":
        return "how unusual a row is" + (f", from data with {columns:,} columns" if columns else "")
    labels = data.get("labels") or {"": data.get("label")}
    texts = [f"{name} ({text})" if name and name != text else str(text) for name, text in labels.items()]
    names = " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    tasks = {
        "binary": f"the probability that {names} is true",
        "multiclass": f"the class of {names}",
        "multilabel": f"the classes of {names}",
        "regression": f"the number {names}",
        "survival": f"the time until the event, as {names}",
        "retrieval": f"the items for which {names} is likely",
    }
    source = f", from data with {columns:,} columns" if columns else ""
    return f"{tasks.get(str(data.get('task')), names)}{source}"


def _choose_metrics(summary: RunSummary) -> list[str]:
    """Return the metrics to show: those with a bound on the whole split come first."""
    bounded = [check.metric for check in summary.checks if not check.slice]
    names, _ = split_metric_names(
        name for name in dict.fromkeys((*bounded, *summary.metrics)) if name in summary.metrics
    )
    return names[:_METRICS]


def _find_direction(name: str) -> Better | None:
    """Return which values of a metric are better. None for metrics of other Evaluators."""
    try:
        return metric(label_of(name)[1]).better
    except ValueError:
        return None


def _measure(summary: RunSummary, name: str) -> Measurement:
    value, direction = summary.metrics[name], _find_direction(name)
    constant = summary.constant.get(name)
    linear, baseline = summary.linear.get(name), summary.baseline.get(name)
    judgement = []
    if direction and constant:
        judgement.append(f"{_compare_with_constant(value, constant, direction)} the {reference_of(summary.constant)}")
    for other, text in ((linear, "a linear model"), (baseline, "the previous model")):
        if direction and other is not None and math.isfinite(value - other):
            gain = _gain(value, other, direction)
            by = f"{abs(gain):.2g} {'better' if gain > 0 else 'worse'} than" if gain else "equal to"
            judgement.append(f"{by} {text}")
    return Measurement(
        metric=name,
        better={"higher": "higher is better", "lower": "lower is better", "nearer 1": "nearer 1 is better"}[direction]
        if direction
        else "",
        value=value,
        interval=summary.intervals.get(name),
        constant=constant.value if constant else None,
        linear=linear,
        baseline=baseline,
        judgement="; ".join(judgement),
    )


def _gain(value: float, other: float, direction: Better) -> float:
    """Return by how much a value is better than another; negative if it is worse."""
    if direction == "nearer 1":
        return abs(other - 1) - abs(value - 1)
    return value - other if direction == "higher" else other - value


def _compare_with_constant(value: float, constant: ConstantMetric, direction: Better) -> str:
    low, high = constant.interval or (_gain(value, constant.value, direction),) * 2
    if low > 0:
        return "better than"
    return "worse than" if high < 0 else "not certainly better than"


def _list_reasons(run: dict[str, Any], summary: RunSummary) -> Iterator[Remark]:
    judged = [check for check in summary.checks if check.judged]
    failed = [check for check in judged if not check.passed]
    if summary.verdict == BLESSED and not failed:
        unjudged = len(summary.checks) - len(judged)
        left = f"; {unjudged:,} more could not be judged" if unjudged else ""
        yield Remark("pass", f"The model meets all {len(judged):,} bounds that were judged{left}.")
    if summary.forced:
        yield Remark("warning", f"The model was blessed by force: {summary.forced}; {len(failed):,} bounds failed.")
    yield from (Remark("fail", str(check)) for check in failed[:_CHECKS])
    if len(failed) > _CHECKS:
        yield Remark("fail", f"{len(failed) - _CHECKS:,} more bounds, see the evaluation")
    if summary.serving and not summary.serving.passed:
        yield Remark("rejected", str(summary.serving))
    if run["error"]:
        yield Remark("failed", str(run["error"]))
    if summary.verdict == NOT_EVALUATED and not run["error"]:
        yield Remark("not evaluated", "The run did not evaluate a model.")


def _list_findings(summary: RunSummary) -> list[str]:
    return [
        finding for name, result in summary.results.items() for finding in NODES_WITH_RESULT[name].list_findings(result)
    ]


def _list_important_columns(content: Content) -> list[tuple[str, float]]:
    overall = content.importance.slices[0].columns if content.importance else ()
    shares = [(column.column, column.share.value) for column in overall if column.share]
    return [(column, share) for column, share in shares if share >= _LEAST_SHARE][:_TOP]


def _list_worse_slices(summary: RunSummary) -> Iterator[Remark]:
    """Return the slices whose interval lies on the worse side of the whole split's value, the worst first."""
    name = next((name for name in _choose_metrics(summary) if _find_direction(name)), None)
    direction = _find_direction(name) if name else None
    if name is None or direction is None:
        return
    overall = summary.metrics[name]

    def is_clearly_worse(part: SliceMetrics) -> bool:
        ends: Sequence[float] = part.intervals.get(name, ())
        return bool(ends) and all(_gain(end, overall, direction) < 0 for end in ends)

    worse = sorted(filter(is_clearly_worse, summary.slices), key=lambda part: -part.rows)
    worse.sort(key=lambda part: _gain(part.metrics[name], overall, direction))
    for part in worse[:_WORST]:
        yield Remark(
            "warning",
            f"{format_slice_name(part.slice)} ({part.rows:,} rows): {name} {format_figure(part.metrics[name])}, "
            f"overall {format_figure(overall)}",
        )
    if len(worse) > _WORST:
        yield Remark("warning", f"{len(worse) - _WORST:,} more slices are clearly worse than the whole")
    if summary.slices and not worse:
        yield Remark("pass", f"No slice has a clearly worse {name} than the whole.")


def _list_missed_classes(summary: RunSummary) -> Iterator[Remark]:
    if summary.missed_classes:
        yield Remark("warning", f"{summary.missed_classes}")


def _list_changes(content: Content) -> Iterator[str]:
    if content.trained_before is None:
        return
    before = content.trained_before
    pairs = list((before.config or {}).items())
    yield from (
        f"{name}: {_ARROW.join('not set' if value is None else value for value in values)}"
        for name, values in pairs[:_CHANGES]
    )
    if len(pairs) > _CHANGES:
        yield f"{len(pairs) - _CHANGES:,} more settings of the config"
    changed = [change for change in content.before.changes if change.changed] if content.before else []
    if changed:
        texts = [
            change.name if change.distance is None else f"{change.name} (distance {change.distance:.3f})"
            for change in changed[:_TOP]
        ]
        left = f" and {len(changed) - _TOP:,} more" if len(changed) > _TOP else ""
        yield f"columns of the data: {', '.join(texts)}{left}"
    metrics = content.summary.metrics
    for name in _choose_metrics(content.summary):
        if name in before.metrics and before.metrics[name] != metrics[name]:
            yield f"{name}: {format_figure(before.metrics[name])}{_ARROW}{format_figure(metrics[name])}"
