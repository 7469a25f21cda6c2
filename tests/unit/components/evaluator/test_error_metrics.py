"""Metrics that TFMA does not provide equal scikit-learn's, computed from columns and row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics

from components.evaluator.binning import Sums, mean
from components.evaluator.error_metrics import ExplainedShare, MeanDeviance, RootOfSquaredErrors, TopClassAccuracy
from components.evaluator.quantile_metrics import (
    OUTPUT,
    IntervalCoverage,
    IntervalWidth,
    MeanQuantileLoss,
    QuantileLoss,
)
from tests.support.data.tolerances import float64_sum

RANDOM = np.random.default_rng(4)
LABELS = RANDOM.normal(50, 3, 80)
PREDICTIONS = LABELS + RANDOM.normal(0.5, 1, 80)
CLASSES = RANDOM.integers(0, 4, 80)
PROBABILITIES = RANDOM.dirichlet([1, 1, 1, 1], 80)
COUNTS = RANDOM.poisson(3, 80)
LEVELS = [0.1, 0.5, 0.9]
QUANTILES = LABELS[:, None] + RANDOM.normal([-2, 0, 2], 1, (80, 3))
LOSSES = [metrics.mean_pinball_loss(LABELS, QUANTILES[:, at], alpha=level) for at, level in enumerate(LEVELS)]
NEAR = float64_sum(80, largest=2500)
"""Tolerance of sums over the rows, whose squared values are about 2,500."""
INSIDE = (QUANTILES[:, 0] <= LABELS) & (QUANTILES[:, 2] >= LABELS)


CONFIG = tfma.EvalConfig(model_specs=[tfma.ModelSpec(prediction_key="prediction")])


def compute_by_columns(metric: tfma.metrics.Metric, labels: Any, predictions: Any) -> float:
    combiner = metric.computations(eval_config=CONFIG)[0].combiner
    bins, summands = combiner.bins(labels, predictions)
    assert len(set(bins.tolist())) <= 1
    whole = Sums(bins[:1], np.array([float(len(bins))])[: len(bins)], summands.sum(axis=0)[None])
    ((_, value),) = combiner.result(whole).items()
    return mean(value) if isinstance(value, Sums) else float(value)


def compute_by_rows(metric: tfma.metrics.Metric, labels: Any, predictions: Any) -> float:
    combiner = metric.computations(eval_config=CONFIG)[0].combiner
    parts = [combiner.create_accumulator() for _ in range(3)]
    for row in range(len(labels)):
        prediction = np.atleast_1d(predictions[row])
        example = tfma.metrics.StandardMetricInputs(
            label=labels[row : row + 1],
            prediction={OUTPUT: prediction, "prediction": prediction[:1]} if combiner.output else prediction,
            example_weight=np.array(1.0),
        )
        parts[row % 3] = combiner.add_input(parts[row % 3], example)
    ((_, value),) = combiner.extract_output(combiner.merge_accumulators(parts)).items()
    return mean(value) if isinstance(value, Sums) else float(value)


@pytest.mark.parametrize(
    ("metric", "labels", "predictions", "expected"),
    [
        (RootOfSquaredErrors("x"), LABELS, PREDICTIONS, math.sqrt(metrics.mean_squared_error(LABELS, PREDICTIONS))),
        (ExplainedShare("x"), LABELS, PREDICTIONS, metrics.r2_score(LABELS, PREDICTIONS)),
        (QuantileLoss("x", 0.9), LABELS, PREDICTIONS, metrics.mean_pinball_loss(LABELS, PREDICTIONS, alpha=0.9)),
        (QuantileLoss("x", 0.9, LEVELS), LABELS, QUANTILES, LOSSES[2]),
        (MeanQuantileLoss("x", LEVELS), LABELS, QUANTILES, np.mean(LOSSES)),
        (MeanQuantileLoss("x", [0.1, 0.9]), LABELS, QUANTILES, math.nan),
        (IntervalCoverage("x", LEVELS), LABELS, QUANTILES, INSIDE.mean()),
        (IntervalCoverage("x", [0.1, 0.9]), LABELS, PREDICTIONS, math.nan),
        (IntervalWidth("x", LEVELS), LABELS, QUANTILES, np.mean(QUANTILES[:, 2] - QUANTILES[:, 0])),
        (MeanDeviance("x", 1), COUNTS, PREDICTIONS, metrics.mean_poisson_deviance(COUNTS, PREDICTIONS)),
        (MeanDeviance("x", 1.6), COUNTS, PREDICTIONS, metrics.mean_tweedie_deviance(COUNTS, PREDICTIONS, power=1.6)),
        (MeanDeviance("x", 1.5), np.array([1.0, 0.0]), np.array([2.0, -0.1]), math.inf),
        (TopClassAccuracy("x", 2), CLASSES, PROBABILITIES, metrics.top_k_accuracy_score(CLASSES, PROBABILITIES, k=2)),
        (ExplainedShare("x"), np.full(5, 3.0), np.arange(5.0), math.nan),
        (TopClassAccuracy("x", 9), np.array([-1, 4, 2]), PROBABILITIES[:3], 1 / 3),
    ],
)
def test_metric_is_that_of_scikit_learn(
    metric: tfma.metrics.Metric, labels: Any, predictions: Any, expected: float
) -> None:
    assert compute_by_columns(metric, labels, predictions) == NEAR.approx(expected, nan_ok=True)
    assert compute_by_rows(metric, labels, predictions) == NEAR.approx(expected, nan_ok=True)


@pytest.mark.parametrize("metric", [RootOfSquaredErrors("x"), ExplainedShare("x"), TopClassAccuracy("x", 2)])
def test_metric_without_rows_is_nan(metric: tfma.metrics.Metric) -> None:
    assert math.isnan(compute_by_rows(metric, np.empty(0), np.empty(0)))


def test_quantile_metrics_are_nan_for_a_model_without_quantiles() -> None:
    combiner = MeanQuantileLoss("x", LEVELS).computations(eval_config=CONFIG)[0].combiner
    for prediction in (np.array([1.0]), {"prediction": np.array([1.0])}):
        example = tfma.metrics.StandardMetricInputs(
            label=np.array([2.0]), prediction=prediction, example_weight=np.array(1.0)
        )
        accumulator = combiner.add_input(combiner.create_accumulator(), example)
        ((_, sums),) = combiner.extract_output(accumulator).items()
        assert math.isnan(mean(sums))
        assert sums.total()[0] == 0
