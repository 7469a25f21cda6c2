"""The gate: check every bound of the config. A model that fails a check is not blessed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from components.base.bounds import is_at_least, is_at_most
from components.base.config_section import Task
from components.evaluator import config as names
from components.evaluator.config import RATES, EvaluationConfig, FairnessConfig, Rate, Threshold, slice_of
from components.evaluator.importance import Importance
from components.evaluator.verdict import (
    Check,
    CheckKind,
    ConstantMetric,
    Measured,
    SliceMetrics,
    Verdict,
    reference_of,
)
from components.features.leakage import Leakage
from components.results.decision import Decision

PREVALENCE = "prevalence"
"""Name of the share of rows with label 1, from which the gate detects constant labels; it is not reported."""

_NO_BASELINE = "no earlier blessed model"
_ALIKE = "all labels are alike"
_NO_GROUP = "no group has what the metric needs"
_NO_INTERACTION = "no row has label 1"
_NOT_A_NUMBER = "not a number"
_NO_PROBABILITIES = "labels or predictions are no probabilities"
_LEAKAGE = "leakage"
_RANKED = ("recall_at_10", "mrr")
_INCOMPARABLE = (
    (("auc", "balanced_accuracy", "binary_crossentropy", "crossentropy", "log_loss"), _NO_PROBABILITIES),
    (
        ("mean_squared_error", "mean_absolute_error", "quantile_loss"),
        "the labels are too close to each other, or too large",
    ),
    (("poisson_deviance", "tweedie_deviance"), "a label is negative"),
    (("negative_log_likelihood",), "no row has a weight"),
    (_RANKED, _NO_INTERACTION),
)
"""Prefixes of metric names, and the reason why the metric of the constant is not a number."""


def judge(
    config: EvaluationConfig,
    measured: Measured,
    force: str | None,
    leakage: Leakage | None = None,
    *,
    uncalibrated: str | None = None,
    importance: Importance | None = None,
    task: Task | None = None,
    decision: Decision | None = None,
) -> Verdict:
    """Check a model's metrics.

    Args:
      config: The bounds.
      measured: The metrics of the model.
      force: Reason to bless the model even if checks fail. If None, the model is blessed only if all checks pass.
      leakage: Columns that alone predict the label; None if leakage was not looked for.
      uncalibrated: Reason why the model's probabilities are not calibrated, such as class_weights; None if they should
        be calibrated.
      importance: Importance of the columns; None if it was not measured.
      task: Task of the model, which disambiguates metric names that several tasks share; None if it is unknown.
      decision: The model's decision on the label; None if it returns probabilities only.

    Returns:
      The verdict.
    """
    overall, compared = measured.whole, measured.compared
    slices = sorted(measured.slices, key=lambda metrics: sorted(metrics.slice.items()))
    checks = list(_check_thresholds(config.thresholds, overall, compared, 0, task))
    for name, thresholds in config.slice_thresholds.items():
        for metrics in _find_slices(name, slices):
            checks += _check_thresholds(thresholds, metrics, compared, config.min_examples, task)
    if config.fairness:
        groups = [metrics for metrics in slices if set(metrics.slice) == {config.fairness.column}]
        groups = [metrics for metrics in groups if metrics.rows >= config.min_examples]
        checks += [_check_gap(config.fairness, rate, groups, config.min_examples) for rate in config.fairness.max_gap]
    checks += [_check_importance(name, most, importance) for name, most in config.max_importance.items()]
    checks += _check_decision(decision)
    warnings: list[str] = []
    for safeguards, reaction in (
        (_check_constant(overall, uncalibrated), config.constant),
        (_check_leakage(leakage), config.leakage),
    ):
        if reaction == "refuse":
            checks += safeguards
        else:
            warnings += [str(check) for check in safeguards if not check.passed]
    passed = all(check.passed for check in checks)
    return Verdict(
        blessed=passed or force is not None,
        forced=None if passed else force,
        rows=overall.rows,
        checks=tuple(checks),
        slices=tuple(_select_reported(metrics, config.fairness) for metrics in (overall, *slices)),
        warnings=tuple(warnings),
    )


_COMPARED = (
    ("binary_crossentropy",),
    ("crossentropy",),
    # Neither a constant nor a model is the best in both errors: the mean minimizes the squared error, the median the
    # absolute error.
    ("mean_squared_error", "mean_absolute_error"),
    ("log_loss",),
    ("negative_log_likelihood",),
    # Of anomalies; binary models have losses as well.
    ("auc",),
    # In a small catalogue the first ten items may be nearly all.
    _RANKED,
)
"""Metrics by task; in at least one of them the model has to be better than the best constant."""
_COMPARED_UNCALIBRATED = (("auc",), ("balanced_accuracy",), *_COMPARED[2:])
"""The same for a model whose probabilities are not calibrated: metrics that do not depend on calibration."""
_HEADLINES = {
    "accuracy": ("accuracy", "the constant's"),
    # The mean, because a model of the mean may have a larger absolute error than the median.
    "mean_absolute_error_of_mean": ("mean_absolute_error", "the mean's"),
}
"""Metrics of the constant that a model may not miss beyond the interval although its loss is better → the metric, and
whose value it is."""
_HIGHER = ("accuracy", "auc", "balanced_accuracy", *_RANKED)
"""Metrics with better higher values."""
_OF_LOSS = ("quantile_loss", "poisson_deviance", "tweedie_deviance")
"""Prefixes of the metrics of a model's loss, which replace the metrics of the task."""


def _check_constant(overall: SliceMetrics, uncalibrated: str | None) -> list[Check]:
    """Check that the model is better than the best constant prediction; no checks if the constant is unknown."""
    name = reference_of(overall.constant)
    reference = "the constant's" if name == "best constant" else f"the {name}'s"
    loss_metrics = tuple(name for name in overall.constant if name.startswith(_OF_LOSS))
    groups = (loss_metrics, *(_COMPARED_UNCALIBRATED if uncalibrated else _COMPARED))
    metrics = next((group for group in groups if any(name in overall.constant for name in group)), ())
    checks = [_check_gain(name, overall, uncalibrated, reference) for name in metrics if name in overall.constant]
    better = next((check for check in checks if check.passed and check.judged), None)
    if better is not None:
        reason = f"{better.metric} is better than {reference}"
        checks = [check if check.passed else check.skip(reason) for check in checks]
    # Weights of classes may lower the accuracy on purpose.
    return checks if uncalibrated else [*checks, *_check_headlines(overall)]


def _check_headlines(overall: SliceMetrics) -> Iterator[Check]:
    """Yield a failed check per metric that people read first and that is certainly worse than the constant's."""
    for name, (metric, reference) in _HEADLINES.items():
        constant = overall.constant.get(name)
        if constant and constant.interval and constant.interval[1] < 0 and "quantile_loss" not in overall.constant:
            yield replace(_check_gain(name, overall, None, reference), metric=metric)


def _check_gain(metric: str, overall: SliceMetrics, uncalibrated: str | None, reference: str) -> Check:
    constant, is_lower_better = overall.constant[metric], metric not in _HIGHER
    limit = f"{reference} {constant.value:.6g}" if math.isfinite(constant.value) else reference
    check = Check(
        metric,
        slice={},
        bound=f"{'below' if is_lower_better else 'above'} {limit} beyond the interval",
        value=None,
        baseline=_finite(overall).baseline.get(metric),
        rows=overall.rows,
        passed=False,
        why=None,
        kind="constant",
    )
    if not math.isfinite(constant.value):
        return check.skip(next(why for prefixes, why in _INCOMPARABLE if metric.startswith(prefixes)))
    if constant.gain is None or not math.isfinite(constant.gain):
        # With constant labels, neither the area under the curve nor the balanced accuracy is defined.
        return replace(check, why=_NOT_A_NUMBER if is_lower_better else _ALIKE)
    passed, why = _explain_gain(constant, overall.rows, is_lower_better)
    if uncalibrated and not is_lower_better:
        why += f", probabilities are not calibrated because of {uncalibrated}"
    value = constant.value + (-constant.gain if is_lower_better else constant.gain)
    return replace(check, value=value, passed=passed, why=why)


def _explain_gain(constant: ConstantMetric, rows: int, is_lower_better: bool) -> tuple[bool, str]:
    """Return whether a gain exceeds its interval, and the gain in words."""
    gain = constant.gain or 0.0
    if is_lower_better and not constant.value:
        return False, _ALIKE
    words = f"{'better' if gain > 0 else 'worse'} by {abs(gain):.4g}"
    row_count = f"{rows:,} row{'' if rows == 1 else 's'}"
    if constant.interval is None:
        return False, f"{words}, no interval, {row_count}: too few for a verdict"
    low, high = constant.interval
    ends = f"{low:.4g} to {high:.4g}" if gain > 0 else f"{-high:.4g} to {-low:.4g}"
    words = f"{words}, 95 % interval {ends}, {row_count}"
    # A smaller gain is a rounding error.
    if low > 1e-9 * abs(constant.value):
        return True, words
    return False, f"{words}: too few for a verdict" if gain > 0 else words


def _check_leakage(leakage: Leakage | None) -> list[Check]:
    """Return a failed check per column that alone predicts the label, or a single check that passed."""
    if leakage is None:
        return []
    if leakage.unknown or not leakage.leaks:
        bound = "no column that alone predicts the label"
        check = Check(_LEAKAGE, {}, bound, None, None, None, passed=True, why=None, kind="leakage")
        return [check.skip(leakage.unknown) if leakage.unknown else check]
    return [
        Check(
            f"{_LEAKAGE} of {leak.column}",
            {},
            f"below {leak.bound:g}",
            leak.figure,
            None,
            None,
            passed=False,
            why=f"{leak.why}; remove it if it is not known when the model predicts",
            kind="leakage",
        )
        for leak in leakage.leaks
    ]


def _check_importance(column: str, most: float, importance: Importance | None) -> Check:
    """Check the share of a column in the importance of all columns; an unknown share fails."""
    metric, bound = f"importance of {column}", f"at most {most:g}"
    unknown = importance.unknown if importance else "it was not measured"
    check = Check(metric, {}, bound, None, None, None, passed=False, why=unknown, kind="importance")
    if importance is None or unknown:
        return check
    measured = importance.find(column)
    if measured is None or measured.share is None:
        return check.skip("the column has no values")
    share, rows = measured.share, importance.slices[0].rows
    ends = "" if share.interval is None else ", 95 % interval {:.4g} to {:.4g}".format(*share.interval)
    loss = f"{importance.metric} {measured.loss.value:+.4g} with other rows' values"
    return replace(check, value=share.value, rows=rows, passed=share.value <= most, why=f"{loss}{ends}")


def _check_decision(decision: Decision | None) -> list[Check]:
    """Check that the threshold reaches the smallest precision or recall for which the Trainer chose it.

    A model without such a threshold does not do what the config promises. It is evaluated all the same, because the
    curves show what can be reached.
    """
    if decision is None or decision.bounded is None or decision.least is None:
        return []
    best = "" if decision.is_reached else f", the highest {decision.bounded} of any threshold"
    return [
        Check(
            f"{decision.bounded} of the decision",
            {},
            f"at least {decision.least:g} on the validation rows",
            decision.metrics[decision.bounded],
            None,
            decision.rows,
            passed=decision.is_reached,
            why=f"threshold {decision.threshold:.4g}, recall {decision.metrics['recall']:.4g}{best}",
            kind="decision",
        )
    ]


def _find_slices(name: str, slices: Sequence[SliceMetrics]) -> list[SliceMetrics]:
    """Return the slices of a name under `slice_thresholds`."""
    column, value = slice_of(name)
    matches = [
        metrics for metrics in slices if set(metrics.slice) == {column} and value in (None, metrics.slice[column])
    ]
    # Report a requested value even if it does not occur.
    return matches if matches or value is None else [SliceMetrics({column: value}, 0, {}, {})]


def _check_thresholds(
    thresholds: Mapping[str, Threshold], measured: SliceMetrics, compared: bool, least: int, task: Task | None
) -> Iterator[Check]:
    finite = _finite(measured)
    for metric, threshold in thresholds.items():
        value, baseline = finite.metrics.get(metric), finite.baseline.get(metric)
        known = names.metric(metric, task)
        undefined = None
        if known.both_classes and _is_constant(measured):
            undefined = _ALIKE
        elif value is None and (known.grouped or task == "retrieval"):
            undefined = _NO_GROUP if known.grouped else _NO_INTERACTION
        for kind, bound, passed, why in _check_bounds(known.better, threshold, value, baseline, compared):
            check = Check(metric, measured.slice, bound, value, baseline, measured.rows, passed, why, kind=kind)
            if measured.rows < least:
                yield check.skip(f"{measured.rows:,} row{'' if measured.rows == 1 else 's'} of {least:,}")
            elif undefined is None:
                yield check
            else:
                # The model is not responsible for a slice without the metric, but the whole split has to show its
                # quality.
                yield check.skip(undefined) if measured.slice else replace(check, passed=False, why=undefined)


def _check_bounds(
    better: str, threshold: Threshold, value: float | None, baseline: float | None, compared: bool
) -> Iterator[tuple[CheckKind, str, bool, str | None]]:
    """Yield the bounds of a threshold: kind, the bound in words, whether the value passes, and an explanation."""
    unknown = _NOT_A_NUMBER if value is None else None
    if threshold.min is not None:
        yield "min", f"at least {threshold.min:g}", value is not None and is_at_least(value, threshold.min), unknown
    if threshold.max is not None:
        yield "max", f"at most {threshold.max:g}", value is not None and is_at_most(value, threshold.max), unknown
    than = {"higher": "below", "lower": "above", "nearer 1": "farther from 1 than"}[better]
    relative: tuple[tuple[CheckKind, float | None, float, str], ...] = (
        ("worse_by", threshold.worse_by, 1.0, f"{threshold.worse_by or 0:g}"),
        (
            "worse_by_fraction",
            threshold.worse_by_fraction,
            abs(baseline or 0.0),
            f"{100 * (threshold.worse_by_fraction or 0):.4g} %",
        ),
    )
    for kind, allowed, scale, words in relative:
        if allowed is None:
            continue
        bound = f"at most {words} {than} the baseline"
        if value is None:
            yield kind, bound, False, _NOT_A_NUMBER
        elif baseline is None:
            yield kind, bound, True, "the baseline's is not a number" if compared else _NO_BASELINE
        else:
            yield kind, bound, is_at_most(_worse(better, value, baseline), allowed * scale, value, baseline), None


def _worse(better: str, value: float, baseline: float) -> float:
    """Return how much worse a value is than the baseline; negative if it is better."""
    if better == "nearer 1":
        return abs(value - 1) - abs(baseline - 1)
    return baseline - value if better == "higher" else value - baseline


def _check_gap(fairness: FairnessConfig, rate: Rate, groups: Sequence[SliceMetrics], least: int) -> Check:
    """Check the difference between the largest and the smallest rate of the groups."""
    allowed = fairness.max_gap[rate]
    finite = [_finite(group) for group in groups]
    # The false positive rate is undefined for a group without negatives.
    rates = {group.slice[fairness.column]: group.metrics[rate] for group in finite if rate in group.metrics}
    baseline = [group.baseline[rate] for group in finite if rate in group.baseline]
    check = Check(
        metric=f"gap of {rate}",
        slice={fairness.column: "any two"},
        bound=f"at most {allowed:g}",
        value=None,
        baseline=max(baseline) - min(baseline) if len(baseline) > 1 else None,
        rows=None,
        passed=True,
        why=None,
        kind="gap",
    )
    if len(rates) < 2:
        return check.skip(f"it takes two groups with {least:,} rows")
    low, high = min(rates, key=lambda name: rates[name]), max(rates, key=lambda name: rates[name])
    gap = rates[high] - rates[low]
    passed = is_at_most(gap, allowed, rates[high], rates[low])
    return replace(check, value=gap, passed=passed, why=f"{rates[low]:.4g} for {low}, {rates[high]:.4g} for {high}")


def _select_reported(measured: SliceMetrics, fairness: FairnessConfig | None) -> SliceMetrics:
    """Return the values to report; rates are reported only for the whole split and the groups that are compared."""
    finite = _finite(measured)
    if fairness is None or set(measured.slice) <= {fairness.column}:
        return finite
    metrics, baseline = (
        {name: value for name, value in values.items() if name not in RATES}
        for values in (finite.metrics, finite.baseline)
    )
    intervals = {name: interval for name, interval in finite.intervals.items() if name in metrics}
    return replace(finite, metrics=metrics, baseline=baseline, intervals=intervals)


def _finite(measured: SliceMetrics) -> SliceMetrics:
    """Remove the prevalence and all values that are not finite or not defined for constant labels."""

    def select_defined(metrics: Mapping[str, float]) -> dict[str, float]:
        return {
            name: value
            for name, value in metrics.items()
            if math.isfinite(value)
            and name != PREVALENCE
            and not (name in names.METRICS and names.METRICS[name].both_classes and _is_constant(measured))
        }

    metrics = select_defined(measured.metrics)
    intervals = {name: interval for name, interval in measured.intervals.items() if name in metrics}
    constant = {name: metric for name, metric in measured.constant.items() if not measured.slice and _is_finite(metric)}
    baseline = select_defined(measured.baseline)
    return replace(measured, metrics=metrics, baseline=baseline, intervals=intervals, constant=constant)


def _is_finite(constant: ConstantMetric) -> bool:
    return all(map(math.isfinite, (constant.value, constant.gain or 0.0, *(constant.interval or ()))))


def _is_constant(measured: SliceMetrics) -> bool:
    return measured.metrics.get(PREVALENCE) in (0.0, 1.0)
