"""Tests of the gate of a variant: metrics, differences and bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from components.edge.config import VariantConfig
from components.edge.gate import Rows, judge
from components.edge.verdict import EdgeVerdict, Latency
from tests.support.data.tolerances import float64_sum, rounding

LABELS = np.array([0, 1, 1, 0, 1.0])
PREDICTIONS = np.array([0.2, 0.8, 0.6, 0.4, 0.7], np.float32)
BINARY = Rows("binary", LABELS, np.ones(5), PREDICTIONS)
LATENCIES = (Latency(1, 2.0, 5.0, 1.5), Latency(2, 1.0, 2.0, 1.6))


def why(predictions: Any, rows: Rows = BINARY, **bounds: Any) -> tuple[str, ...]:
    return judge(VariantConfig(**bounds), rows, b"x" * 2000, predictions, LATENCIES).why


def test_auc_supports_weights_and_ties() -> None:
    rows = Rows("binary", np.array([0, 1, 0, 1.0]), np.array([1, 2, 3, 4.0]), np.zeros(4))
    # Weights of pairs of a positive and a negative row: 2*1, 4*1 and 4*3 are ordered correctly, and 2*3 is a tie.
    assert rows.metric(np.array([0.1, 0.5, 0.5, 0.9])) == float64_sum(4).approx((2 + 4 + 12 + 6 / 2) / 24)


def test_metric_that_cannot_be_computed_is_not_bounded() -> None:
    for task in ("binary", "regression"):
        assert math.isnan(Rows(task, np.ones(3), np.ones(3), np.zeros(3)).metric(np.array([0.1, 0.2, 0.3])))
    assert why(PREDICTIONS, Rows("binary", np.ones(5), np.ones(5), PREDICTIONS)) == ()


def test_equal_predictions_pass() -> None:
    result = judge(VariantConfig(), BINARY, b"x" * 2000, PREDICTIONS, LATENCIES)
    assert (result.passed, result.metric, result.mean_difference, result.bytes) == (True, 1.0, 0.0, 2000)
    assert result.gzip_bytes is not None
    assert result.gzip_bytes < 100
    verdict = EdgeVerdict("auc", 1.0, 5, 5, (result,))
    assert EdgeVerdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"max_kilobytes": 1.9}, "kilobytes: expected at most 1.9, received 2"),
        ({"max_p99_ms": 4}, "p99 in ms: expected at most 4, received 5"),
    ],
)
def test_size_and_latency_have_bounds(bounds: dict[str, Any], reason: str) -> None:
    assert why(PREDICTIONS, **bounds) == (reason,)


def test_changed_predictions_fail_even_if_the_metric_is_unchanged() -> None:
    moved = PREDICTIONS + np.array([0, 0.15, 0, 0, 0], np.float32)
    assert why(moved) == (
        "mean difference: expected at most 0.01, received 0.03",
        "greatest difference: expected at most 0.1, received 0.15",
    )
    assert not why(moved, max_mean_difference=0.05, max_difference=None)


def test_drop_of_the_metric_fails() -> None:
    reasons = why(1 - PREDICTIONS, max_mean_difference=1, max_difference=1)
    assert reasons == ("drop of auc: expected at most 0.005, received 1",)


def test_predictions_that_are_not_finite_fail() -> None:
    assert why(np.full(5, np.nan)) == ("expected finite predictions, received NaN or infinite values",)


def test_metric_and_differences_depend_on_the_task() -> None:
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6]], np.float32)
    classes = Rows("multiclass", np.array([0, 1.0]), np.ones(2), probabilities)
    assert classes.metric(probabilities) == 1.0
    assert classes.differences(probabilities[:, ::-1]) == rounding(2).approx([0.8, 0.2])
    numbers = Rows("regression", np.array([0, 4.0]), np.ones(2), np.array([0, 4], np.float32))
    assert numbers.metric(np.array([0, 4.0])) == 1.0
    # A difference of 1 is half of the labels' standard deviation.
    assert numbers.differences(np.array([0, 3.0])) == rounding(2).approx([0, 0.5])
