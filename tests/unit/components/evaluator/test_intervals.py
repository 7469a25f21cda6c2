"""Confidence intervals: their coverage, known values, and cases in which an interval cannot be computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from components.evaluator import intervals
from components.evaluator.intervals import Interval, ScoreBins
from tests.support.data.tolerances import rounding

RUNS, ROWS, BINS = 600, 300, 10_000
POPULATION = 400_000


def draw_population() -> tuple[Any, Any]:
    """Return labels and probabilities of the whole population; the model is slightly overconfident."""
    random = np.random.default_rng(11)
    logit = random.normal(-0.8, 1.3, POPULATION)
    label = random.uniform(size=POPULATION) < 1 / (1 + np.exp(-logit))
    return label.astype(float), 1 / (1 + np.exp(-1.2 * logit))


def bin_scores(label: Any, probability: Any) -> ScoreBins:
    at = (probability * BINS).astype(int)
    sums = [np.bincount(at, weights, BINS) for weights in (np.ones(len(at)), label, probability)]
    is_filled = sums[0] > 0
    return ScoreBins(*(column[is_filled] for column in sums))


def loss(label: Any, probability: Any) -> Any:
    return -np.log(np.where(label == 1, probability, 1 - probability))


def auc(label: Any, probability: Any) -> tuple[float, Interval | None]:
    value = float(metrics.roc_auc_score(label, probability))
    return value, intervals.compute_auc_interval(value, bin_scores(label, probability))


def auc_precision_recall(label: Any, probability: Any) -> tuple[float, Interval | None]:
    value = float(metrics.average_precision_score(label, probability))
    return value, intervals.compute_average_precision_interval(value, bin_scores(label, probability))


def calibration(label: Any, probability: Any) -> tuple[float, Interval | None]:
    value = float(probability.sum() / label.sum())
    return value, intervals.compute_calibration_interval(value, bin_scores(label, probability))


def crossentropy(label: Any, probability: Any) -> tuple[float, Interval | None]:
    value = float(loss(label, probability).mean())
    return value, intervals.compute_crossentropy_interval(value, bin_scores(label, probability))


def accuracy(label: Any, probability: Any) -> tuple[float, Interval | None]:
    value = float(((probability > 0.5) == label).mean())
    return value, intervals.compute_rate_interval(value, len(label))


def squared_error(label: Any, probability: Any) -> tuple[float, Interval | None]:
    errors = (label - probability) ** 2
    return float(errors.mean()), intervals.compute_mean_interval(
        float(errors.mean()), float((errors**2).mean()), len(errors)
    )


@pytest.mark.extended
@pytest.mark.parametrize(
    "measure",
    [auc, auc_precision_recall, calibration, crossentropy, accuracy, squared_error],
    ids=lambda function: function.__name__,
)
def test_about_95_percent_of_the_intervals_contain_the_true_value(measure: Any) -> None:
    label, probability = draw_population()
    truth, _ = measure(label, probability)
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(RUNS):
        drawn_rows = random.integers(0, POPULATION, ROWS)
        value, interval = measure(label[drawn_rows], probability[drawn_rows])
        assert interval is not None
        low, high = interval
        assert low <= value <= high
        covered += low <= truth <= high
    # Allow three standard deviations of the count and a margin, because the intervals hold only asymptotically.
    assert 0.92 <= covered / RUNS <= 0.985


def test_interval_of_a_rate_is_wilsons_interval() -> None:
    expected = stats.binomtest(9, 12).proportion_ci(0.95, method="wilson")
    assert intervals.compute_rate_interval(0.75, 12) == rounding(20, dtype=np.float64).approx(
        (expected.low, expected.high)
    )


@pytest.mark.parametrize("rate", [0.0, 1.0, 1 - 1e-16])
def test_rate_of_0_or_1_is_in_its_interval(rate: float) -> None:
    for trials in (1, 3, 10, 12345):
        interval = intervals.compute_rate_interval(rate, trials)
        assert interval is not None
        assert 0 <= interval[0] <= rate <= interval[1] <= 1
        assert interval[1] - interval[0] > 1e-5


def test_interval_of_a_mean_is_students_t_interval() -> None:
    values = np.array([1.0, 2.5, 4.0, 3.0, 2.0])
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert intervals.compute_mean_interval(values.mean(), (values**2).mean(), 5) == pytest.approx(
        expected, rel=1e-9, abs=1e-9
    )


def test_lower_bound_of_a_mean_is_not_negative() -> None:
    interval = intervals.compute_mean_interval(1.0, 50.0, 10)
    assert interval is not None
    assert interval[0] == 0.0


def make_bins(rows: list[float], labels: list[float], predictions: list[float]) -> ScoreBins:
    return ScoreBins(*(np.array(column, float) for column in (rows, labels, predictions)))


@pytest.mark.parametrize(
    "interval",
    [
        intervals.compute_rate_interval(math.nan, 10),
        intervals.compute_rate_interval(0.5, 0),
        intervals.compute_mean_interval(1.0, 1.0, 1),
        intervals.compute_mean_interval(1.0, 1.0, 9),
        intervals.compute_mean_interval(math.nan, 1.0, 9),
        intervals.compute_mean_interval(1.0, math.inf, 9),
        intervals.compute_auc_interval(0.9, make_bins([5], [1], [2])),
        intervals.compute_auc_interval(0.9, make_bins([], [], [])),
        intervals.compute_auc_interval(1.0, make_bins([5, 5], [0, 5], [1, 4])),
        intervals.compute_average_precision_interval(0.4, make_bins([5, 5], [1, 2], [1, 4])),
        intervals.compute_average_precision_interval(math.nan, make_bins([50, 50], [10, 20], [10, 40])),
        intervals.compute_calibration_interval(math.nan, make_bins([5], [0], [2])),
        intervals.compute_calibration_interval(0.0, make_bins([5], [2], [0])),
        intervals.compute_crossentropy_interval(0.1, make_bins([1], [1], [0.9])),
    ],
)
def test_interval_is_none_without_information_on_the_variance(interval: Interval | None) -> None:
    assert interval is None
