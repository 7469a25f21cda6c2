"""Values exactly at a bound pass although differences are rounded; values beyond the bound fail."""

from __future__ import annotations

from fractions import Fraction

import pytest

from components.base.bounds import FLOAT32_EPSILON, is_at_least, is_at_most
from components.evaluator import gate
from components.evaluator.config import EvaluationConfig, FairnessConfig, Threshold
from components.evaluator.verdict import Measured, SliceMetrics

SHARES = [(better, better - 5) for better in range(5, 51)]
"""Pairs of row counts out of 50 whose shares differ by exactly 0.1."""


@pytest.mark.parametrize("metric", ["binary_accuracy", "brier_score"])
def test_metric_that_is_worse_by_exactly_the_allowed_difference_passes(metric: str) -> None:
    for better, worse in SHARES:
        value, baseline = (worse, better) if metric == "binary_accuracy" else (better, worse)
        assert verdict(metric, {"worse_by": 0.1}, value / 50, baseline / 50), (value, baseline)
        # A difference that is larger by one row of 50,000 fails.
        further = value / 50 + (-2e-5 if metric == "binary_accuracy" else 2e-5)
        assert not verdict(metric, {"worse_by": 0.1}, further, baseline / 50)


def test_metric_that_is_worse_by_exactly_the_allowed_share_passes() -> None:
    for rows in range(10, 1000, 10):
        assert verdict("binary_accuracy", {"worse_by_fraction": 0.1}, rows * 9 / 10 / 1000, rows / 1000), rows


def test_value_equal_to_a_bound_passes() -> None:
    for numerator in range(1, 100):
        share = float(Fraction(numerator, 100))
        computed = 1 - (1 - share)
        assert verdict("binary_accuracy", {"min": share}, computed, None)
        assert verdict("binary_accuracy", {"max": share}, computed, None)


def verdict(metric: str, threshold: dict[str, float], value: float, baseline: float | None) -> bool:
    """Return True if a model with this value passes."""
    before = {} if baseline is None else {metric: baseline}
    overall = SliceMetrics({}, 50, {metric: value, "prevalence": 0.5}, before)
    config = EvaluationConfig.model_validate({"thresholds": {metric: threshold}})
    [check] = gate.judge(config, Measured(overall, (), baseline is not None), None).checks
    return check.passed


def test_gap_of_exactly_the_allowed_size_passes() -> None:
    config = EvaluationConfig(
        thresholds={"auc": Threshold(min=0.5)},
        min_examples=1,
        fairness=FairnessConfig(column="sex", max_gap={"positive_rate": 0.1}),
    )
    overall = SliceMetrics({}, 100, {"positive_rate": 0.5, "prevalence": 0.5}, {})
    for better, worse in SHARES:
        rates = {"f": better / 50, "m": worse / 50}
        groups = tuple(SliceMetrics({"sex": sex}, 50, {"positive_rate": rate}, {}) for sex, rate in rates.items())
        checks = gate.judge(config, Measured(overall, groups, False), None).checks
        [gap] = [check for check in checks if check.metric == "gap of positive_rate"]
        assert gap.passed, rates


def test_tolerance_depends_on_the_precision_of_the_operands() -> None:
    assert not is_at_most(0.1 + 1e-7, 0.1, 1.0)
    assert is_at_most(0.1 + 1e-7, 0.1, 1.0, epsilon=FLOAT32_EPSILON)
    assert not is_at_most(0.1 + 1e-5, 0.1, 1.0, epsilon=FLOAT32_EPSILON)


def test_nan_fails_every_bound() -> None:
    assert not is_at_most(float("nan"), 1.0)
    assert not is_at_least(float("nan"), 0.0)
