"""The gate: checks every bound of the config; a model that fails a check is not blessed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from components.base.bounds import is_at_least, is_at_most
from components.base.config_section import Task
from components.evaluator import config as names
from components.evaluator.config import RATES, EvaluationConfig, FairnessConfig, Rate, Threshold, slice_of
from components.evaluator.importance import Importance
from components.evaluator.verdict import NOT_JUDGED, Check, ConstantMetric, Measured, SliceMetrics, Verdict
from components.features.leakage import Leakage

PREVALENCE = "prevalence"
"""Name of the metric of the share of rows with label 1, by which the gate detects constant labels; not reported."""

_NO_BASELINE = "no earlier blessed model"
_ALIKE = "all labels are alike"
_NO_GROUP = "no group has what the metric needs"
_NO_INTERACTION = "no row has label 1"
_NOT_A_NUMBER = "not a number"
_LEAKAGE = "leakage"
_RANKED = ("recall_at_10", "mrr")
_INCOMPARABLE = (
    (("auc", "balanced_accuracy", "binary_crossentropy", "crossentropy"), "labels or predictions are no probabilities"),
    (
        ("mean_squared_error", "mean_absolute_error", "quantile_loss"),
        "the labels are too close to each other, or too large",
    ),
    (("poisson_deviance", "tweedie_deviance"), "a label is negative"),
    (_RANKED, _NO_INTERACTION),
)
"""How the names of metrics of the constant begin, and why one is not a number."""


def judge(
    config: EvaluationConfig,
    measured: Measured,
    force: str | None,
    leakage: Leakage | None = None,
    *,
    uncalibrated: str | None = None,
    importance: Importance | None = None,
    task: Task | None = None,
) -> Verdict:
    """Check a model's metrics.

    Args:
      config: the bounds.
      measured: the metrics of the model.
      force: the reason to bless the model even if checks fail; None: it is blessed only if all checks pass.
      leakage: the columns that alone predict the label; None if none was looked for.
      uncalibrated: why the model's probabilities are not calibrated, such as class_weights; None if they should be.
      importance: of the columns; None if it was not measured.
      task: of the model; None: not that of a metric whose name has another meaning in other tasks.

    Returns:
      The verdict.
    """
    overall, compared = measured.whole, measured.compared
    slices = sorted(measured.slices, key=lambda each: sorted(each.slice.items()))
    checks = list(_of_thresholds(config.thresholds, overall, compared, 0, task))
    for name, thresholds in config.slice_thresholds.items():
        for each in _matching(name, slices):
            checks += _of_thresholds(thresholds, each, compared, config.min_examples, task)
    if config.fairness:
        groups = [each for each in slices if set(each.slice) == {config.fairness.column}]
        judged = [each for each in groups if each.rows >= config.min_examples]
        checks += [_gap(config.fairness, rate, judged, config.min_examples) for rate in config.fairness.max_gap]
    checks += [_important(name, most, importance) for name, most in config.max_importance.items()]
    warnings: list[str] = []
    for found, reaction in (
        (_of_constant(overall, uncalibrated), config.constant),
        (_of_leakage(leakage), config.leakage),
    ):
        if reaction == "refuse":
            checks += found
        else:
            warnings += [str(check) for check in found if not check.passed]
    passed = all(check.passed for check in checks)
    return Verdict(
        blessed=passed or force is not None,
        forced=None if passed else force,
        rows=overall.rows,
        checks=tuple(checks),
        slices=tuple(_reported(each, config.fairness) for each in (overall, *slices)),
        warnings=tuple(warnings),
    )


_COMPARED = (
    ("binary_crossentropy",),
    ("crossentropy",),
    # No constant is the best in both errors, and no model either: the mean has the least squared error, the median the
    # least absolute one.
    ("mean_squared_error", "mean_absolute_error"),
    # In a small catalogue the first ten items may be nearly all.
    _RANKED,
)
"""For each task, the metrics of which one has to be better than that of the best constant."""
_COMPARED_UNCALIBRATED = (("auc",), ("balanced_accuracy",), *_COMPARED[2:])
"""The same for a model whose probabilities are not calibrated: metrics that do not depend on that."""
_HIGHER = ("auc", "balanced_accuracy", *_RANKED)
"""Those of which a higher value is better."""
_OF_LOSS = ("quantile_loss", "poisson_deviance", "tweedie_deviance")
"""How the names of metrics of a loss begin, which a model is compared in instead."""


def _of_constant(overall: SliceMetrics, uncalibrated: str | None) -> list[Check]:
    """Check that the model is better than the best constant prediction; no check if that was not computed."""
    of_loss = tuple(name for name in overall.constant if name.startswith(_OF_LOSS))
    groups = (of_loss, *(_COMPARED_UNCALIBRATED if uncalibrated else _COMPARED))
    metrics = next((each for each in groups if any(name in overall.constant for name in each)), ())
    checks = [_better(name, overall, uncalibrated) for name in metrics if name in overall.constant]
    better = next((check for check in checks if check.passed and check.judged), None)
    if better is None:
        return checks
    why = f"{NOT_JUDGED}{better.metric} is better than the constant's"
    return [check if check.passed else replace(check, passed=True, why=why) for check in checks]


def _better(metric: str, overall: SliceMetrics, uncalibrated: str | None) -> Check:
    constant, rows = overall.constant[metric], overall.rows
    lower = metric not in _HIGHER
    value: float | None = None
    passed = False
    if not math.isfinite(constant.value):
        passed, why = True, f"{NOT_JUDGED}{next(why for names, why in _INCOMPARABLE if metric.startswith(names))}"
    elif constant.gain is None or not math.isfinite(constant.gain):
        # Labels that are all alike have no area under a curve, and no classes to be balanced.
        why = _NOT_A_NUMBER if lower else _ALIKE
    else:
        value = constant.value + (-constant.gain if lower else constant.gain)
        passed, why = _of_gain(constant, rows, lower)
        why += f", probabilities are not calibrated because of {uncalibrated}" if uncalibrated and not lower else ""
    of_constant = f"the constant's {constant.value:.6g}" if math.isfinite(constant.value) else "the constant's"
    bound = f"{'below' if lower else 'above'} {of_constant} beyond the interval"
    baseline = _finite(overall).baseline.get(metric)
    return Check(metric, {}, bound, value, baseline, rows, passed, why)


def _of_gain(constant: ConstantMetric, rows: int, lower: bool) -> tuple[bool, str]:
    """Return whether a gain is beyond its interval, and the gain in words; `lower`: a lower value is better."""
    gain = constant.gain or 0.0
    if lower and not constant.value:
        return False, _ALIKE
    words = f"{'better' if gain > 0 else 'worse'} by {abs(gain):.4g}"
    counted = f"{rows:,} row{'' if rows == 1 else 's'}"
    if constant.interval is None:
        return False, f"{words}, no interval, {counted}: too few for a verdict"
    low, high = constant.interval
    ends = f"{low:.4g} to {high:.4g}" if gain > 0 else f"{-high:.4g} to {-low:.4g}"
    words = f"{words}, 95 % interval {ends}, {counted}"
    # A rounding error is no gain.
    if low > 1e-9 * constant.value:
        return True, words
    return False, f"{words}: too few for a verdict" if gain > 0 else words


def _of_leakage(leakage: Leakage | None) -> list[Check]:
    """Return a check that failed for each column that alone predicts the label, or one that passed."""
    if leakage is None:
        return []
    if leakage.unknown or not leakage.leaks:
        why = f"{NOT_JUDGED}{leakage.unknown}" if leakage.unknown else None
        return [Check(_LEAKAGE, {}, "no column that alone predicts the label", None, None, None, True, why)]
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
        )
        for leak in leakage.leaks
    ]


def _important(column: str, most: float, importance: Importance | None) -> Check:
    """Check the share of a column in the importance of all columns; a share that is not known does not pass."""
    metric, bound = f"importance of {column}", f"at most {most:g}"
    unknown = importance.unknown if importance else "it was not measured"
    if importance is None or unknown:
        return Check(metric, {}, bound, None, None, None, passed=False, why=unknown)
    found = importance.of(column)
    if found is None or found.share is None:
        return Check(metric, {}, bound, None, None, None, True, f"{NOT_JUDGED}the column has no values")
    ends = "" if found.share.interval is None else ", 95 % interval {:.4g} to {:.4g}".format(*found.share.interval)
    loss = f"{importance.metric} {found.loss.value:+.4g} with other rows' values"
    rows = importance.slices[0].rows
    return Check(metric, {}, bound, found.share.value, None, rows, found.share.value <= most, f"{loss}{ends}")


def _matching(name: str, slices: Sequence[SliceMetrics]) -> list[SliceMetrics]:
    """Return the slices of a name under `slice_thresholds`."""
    column, value = slice_of(name)
    matches = [each for each in slices if set(each.slice) == {column} and value in (None, each.slice[column])]
    # A requested value that no row has is reported.
    return matches if matches or value is None else [SliceMetrics({column: value}, 0, {}, {})]


def _of_thresholds(
    thresholds: Mapping[str, Threshold], measured: SliceMetrics, compared: bool, least: int, task: Task | None
) -> Iterator[Check]:
    finite = _finite(measured)
    for metric, threshold in thresholds.items():
        value, baseline = finite.metrics.get(metric), finite.baseline.get(metric)
        known = names.metric(metric, task)
        alike = known.both_classes and _alike(measured)
        for bound, passed, why in _bounds(known.better, threshold, value, baseline, compared):
            if measured.rows < least:
                passed, why = True, f"{NOT_JUDGED}{measured.rows:,} row{'' if measured.rows == 1 else 's'} of {least:,}"
            elif alike:
                # A slice with one class is no fault of the model; a whole split with one class cannot show its quality.
                passed, why = bool(measured.slice), f"{NOT_JUDGED}{_ALIKE}" if measured.slice else _ALIKE
            elif value is None and (known.grouped or task == "retrieval"):
                lacks = _NO_GROUP if known.grouped else _NO_INTERACTION
                passed, why = bool(measured.slice), f"{NOT_JUDGED}{lacks}" if measured.slice else lacks
            yield Check(metric, measured.slice, bound, value, baseline, measured.rows, passed, why)


def _bounds(
    better: str, threshold: Threshold, value: float | None, baseline: float | None, compared: bool
) -> Iterator[tuple[str, bool, str | None]]:
    """Yield each bound of a threshold: the bound in words, whether the value passes, and an explanation."""
    unknown = _NOT_A_NUMBER if value is None else None
    if threshold.min is not None:
        yield f"at least {threshold.min:g}", value is not None and is_at_least(value, threshold.min), unknown
    if threshold.max is not None:
        yield f"at most {threshold.max:g}", value is not None and is_at_most(value, threshold.max), unknown
    than = {"higher": "below", "lower": "above", "nearer 1": "farther from 1 than"}[better]
    for allowed, scale, template in (
        (threshold.worse_by, 1.0, "{:g}"),
        (threshold.worse_by_fraction, abs(baseline or 0.0), "{:.4g} %"),
    ):
        if allowed is None:
            continue
        bound = f"at most {template.format(allowed if '%' not in template else 100 * allowed)} {than} the baseline"
        if value is None:
            yield bound, False, _NOT_A_NUMBER
        elif baseline is None:
            yield bound, True, "the baseline's is not a number" if compared else _NO_BASELINE
        else:
            yield bound, is_at_most(_worse(better, value, baseline), allowed * scale, value, baseline), None


def _worse(better: str, value: float, baseline: float) -> float:
    """Return by how much a value is worse than the baseline's; negative if it is better."""
    if better == "nearer 1":
        return abs(value - 1) - abs(baseline - 1)
    return baseline - value if better == "higher" else value - baseline


def _gap(fairness: FairnessConfig, rate: Rate, groups: Sequence[SliceMetrics], least: int) -> Check:
    """Check the difference between the largest and the smallest rate of the groups."""
    allowed = fairness.max_gap[rate]
    finite = [_finite(group) for group in groups]
    # A group without negatives has no false positive rate.
    rates = {group.slice[fairness.column]: group.metrics[rate] for group in finite if rate in group.metrics}
    before = [group.baseline[rate] for group in finite if rate in group.baseline]
    largest, smallest = max(rates.values(), default=0.0), min(rates.values(), default=0.0)
    value = largest - smallest if len(rates) > 1 else None
    if value is None:
        passed, why = True, f"{NOT_JUDGED}it takes two groups with {least:,} rows"
    else:
        low, high = min(rates, key=lambda name: rates[name]), max(rates, key=lambda name: rates[name])
        passed = is_at_most(value, allowed, largest, smallest)
        why = f"{rates[low]:.4g} for {low}, {rates[high]:.4g} for {high}"
    return Check(
        metric=f"gap of {rate}",
        slice={fairness.column: "any two"},
        bound=f"at most {allowed:g}",
        value=value,
        baseline=max(before) - min(before) if len(before) > 1 else None,
        rows=None,
        passed=passed,
        why=why,
    )


def _reported(measured: SliceMetrics, fairness: FairnessConfig | None) -> SliceMetrics:
    """Return the values to report; rates only for the groups that are compared and the whole split."""
    finite = _finite(measured)
    if fairness is None or set(measured.slice) <= {fairness.column}:
        return finite
    metrics, baseline = (
        {name: value for name, value in values.items() if name not in RATES}
        for values in (finite.metrics, finite.baseline)
    )
    intervals = {name: interval for name, interval in finite.intervals.items() if name in metrics}
    return SliceMetrics(finite.slice, finite.rows, metrics, baseline, intervals, finite.constant)


def _finite(measured: SliceMetrics) -> SliceMetrics:
    """Remove values that are not finite, or that are undefined for constant labels, and the prevalence."""

    def defined(metrics: Mapping[str, float]) -> dict[str, float]:
        return {
            name: value
            for name, value in metrics.items()
            if math.isfinite(value)
            and name != PREVALENCE
            and not (name in names.METRICS and names.METRICS[name].both_classes and _alike(measured))
        }

    metrics = defined(measured.metrics)
    intervals = {name: interval for name, interval in measured.intervals.items() if name in metrics}
    constant = {} if measured.slice else {name: each for name, each in measured.constant.items() if _is_finite(each)}
    return SliceMetrics(measured.slice, measured.rows, metrics, defined(measured.baseline), intervals, constant)


def _is_finite(constant: ConstantMetric) -> bool:
    return all(math.isfinite(each) for each in (constant.value, constant.gain or 0.0, *(constant.interval or ())))


def _alike(measured: SliceMetrics) -> bool:
    return measured.metrics.get(PREVALENCE) in (0.0, 1.0)
