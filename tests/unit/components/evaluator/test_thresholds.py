"""A prediction equal to the threshold is positive in both computations of a metric, as in scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics

from components.compat.tfma import evaluation
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Slices
from components.evaluator.columnar import Metrics
from components.evaluator.config import RATES, metric
from components.evaluator.eval_config import at_least
from tests.support.data.tolerances import float64_sum

LABELS = np.array([0.0, 0, 1, 1, 0, 1, 1])
NEAR = float64_sum(len(LABELS))


def compute_rates(labels: Any, chosen: Any) -> dict[str, float]:
    """Compute the rates of groups from the counts of a confusion matrix."""
    tn, fp, fn, tp = metrics.confusion_matrix(labels, chosen).ravel()
    return {
        "false_positive_rate": fp / (fp + tn),
        "false_negative_rate": fn / (fn + tp),
        "positive_rate": (tp + fp) / len(labels),
    }


EXPECTED: dict[str, Callable[[Any, Any], float]] = {
    "precision_at_": metrics.precision_score,
    "recall_at_": metrics.recall_score,
    "f1_at_": metrics.f1_score,
    "binary_accuracy_at_": metrics.accuracy_score,
    **{name: lambda labels, chosen, name=name: compute_rates(labels, chosen)[name] for name in RATES},
}


def compute_by_columns(config: tfma.EvalConfig, predictions: Any) -> dict[Any, Any]:
    """Compute a metric from columns."""
    metrics = Metrics(config)
    assert metrics.row_by_row is None
    [combiner] = metrics.columnar
    slices = Slices([()], np.arange(len(LABELS)), np.zeros(len(LABELS), np.int64))
    return combiner.result(binned_sums.count(combiner.bins(LABELS, predictions), slices).select_slice(0))


def compute_by_rows(config: tfma.EvalConfig, predictions: Any) -> dict[Any, Any]:
    """Compute a metric by TFMA's combiner, one row at a time."""
    parts = evaluation.computations(at_least(config))
    combiner = parts.combined[0].combiner
    accumulator = combiner.create_accumulator()
    for label, prediction in zip(LABELS, predictions, strict=True):
        row = tfma.metrics.StandardMetricInputs(
            label=np.array([label]), prediction=np.array([prediction]), example_weight=np.ones(1)
        )
        accumulator = combiner.add_input(accumulator, row)
    return evaluation.complete_results(combiner.extract_output(accumulator), parts, config)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.parametrize("at", [0.5, 0.3, 0.7])
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("compute", [compute_by_columns, compute_by_rows])
def test_prediction_equal_to_the_threshold_is_positive(name: str, at: float, compute: Any) -> None:
    # The float32 nearest to 0.7 is less than 0.7, and the float32 nearest to 0.3 is greater than 0.3.
    limit = np.float32(at)
    predictions = np.array(
        [limit, 0.1, limit, np.nextafter(limit, np.float32(0)), 0.2, 0.9, np.nextafter(limit, np.float32(1))],
        np.float32,
    )
    options = {"thresholds": [at]} if name in RATES else dict(metric(f"{name}{at}").options)
    tfma_class = RATES[name] if name in RATES else metric(f"{name}{at}").tfma_class
    config = tfma.EvalConfig(
        metrics_specs=[
            tfma.MetricsSpec(
                metrics=[tfma.MetricConfig(class_name=tfma_class, config=json.dumps({"name": name, **options}))]
            )
        ]
    )
    [value] = [float(np.ravel(value)[0]) for key, value in compute(config, predictions).items() if key.name == name]
    assert value == NEAR.approx(EXPECTED[name](LABELS, predictions >= limit))


def test_default_threshold_is_passed_to_tfma() -> None:
    config = tfma.EvalConfig(
        metrics_specs=[tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="Precision", config='{"name": "p"}')])]
    )
    [changed] = at_least(config).metrics_specs[0].metrics
    threshold = np.float32(json.loads(changed.config)["thresholds"])
    assert threshold < 0.5 == np.nextafter(threshold, np.float32(1))
