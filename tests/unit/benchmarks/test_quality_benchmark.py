"""Tests of the figures that the quality benchmark computes from the results on a few splits."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import measure, quality, quality_baselines
from benchmarks.quality import Split
from tests.support.data.tolerances import float64_sum


def split(ours: float, trees: float, linear: float, blessed: bool = True, error: float | None = None) -> Split:
    losses = {"ours": ours, "trees": trees, "linear": linear, "constant": 1.0}
    return Split(losses, dict.fromkeys(losses, 2.0), calibration_error=error, blessed=blessed, seconds=30.0)


def test_ours_is_compared_with_the_best_baseline_per_split() -> None:
    splits = [split(0.5, 0.4, 0.6, error=0.02), split(0.4, 0.5, 0.5, error=0.01)]
    figures = quality.facts({"trips": splits})
    assert figures["trips: losses"] == "ours 0.45, trees 0.45, linear 0.55, constant 1"
    assert figures["trips: ours / trees, the best of the others"] == measure.Spread(1.025, 0.8, 1.25)
    assert figures["trips: expected calibration error"] == measure.Spread(0.015, 0.01, 0.02)


def test_equal_losses_share_a_rank_and_a_constant_is_not_ranked() -> None:
    assert split(0.5, 0.5, 0.6).ranks == {"ours": 1, "trees": 1, "linear": 3}
    figures = quality.facts({"trips": [split(0.5, 0.4, 0.6)], "houses": [split(0.3, 0.4, 0.5)]})
    name = "tables with which decisions were made (2)"
    assert figures[f"{name}: ours"] == "mean rank 1.5 ± 0.5, lost gain 0.0833 ± 0.083, 2.0 CPU-seconds"
    assert f"{name}: constant" not in figures


def test_models_that_are_not_better_than_a_constant_are_counted() -> None:
    figures = quality.facts({"noise": [split(1.0, 2, 2, blessed=False), split(1.1, 2, 2), split(0.9, 2, 2)]})
    assert figures["models of ours that are not better than a constant"] == 2
    assert figures["of these blessed"] == 1


def test_loss_equals_the_metric_of_the_evaluator() -> None:
    loss = quality_baselines.compute_loss(False, np.array([0, 1]), np.array([[0.9, 0.1], [1.0, 0.0]]))
    assert loss == pytest.approx((0.1053605 + 16.1180957) / 2, abs=1e-6)
    assert quality_baselines.compute_loss(True, np.array([1.0, 2.0]), np.array([4.0, 6.0])) == float64_sum(2).approx(
        12.5**0.5
    )
