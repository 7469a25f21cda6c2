"""The columnar forms of TFMA's metrics equal TFMA's row-by-row computation for the same config."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from google.protobuf.message import Message

from components.compat.tfma import evaluation
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Slices
from components.evaluator.columnar import Metrics
from tests.support.data.tolerances import rounding

pytestmark = pytest.mark.both_lines
NEAR = rounding(8)
"""Tolerance of sums over six rows with float32 predictions."""
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 1.5])
LABELS = {
    "binary": [0, 1, 1, 0, 1, 1],
    "multiclass": [0, 2, -1, 1, 1, 2],
    "regression": [0.0, 1.5, -2.0, 3.25, 0.5, 7.0],
}
PREDICTIONS = {
    # test_thresholds.py tests predictions equal to a threshold. A test below covers probabilities of exactly 0 and 1.
    "binary": [0.01, 0.99, 0.55, 0.25, 0.9999, 0.30004],
    "multiclass": [
        [0.5, 0.3, 0.2],
        [0.1, 0.1, 0.8],
        [0.2, 0.4, 0.4],
        [0.0, 0.0, 0.0],
        [0.1, 0.6, 0.3],
        [0.4, 0.3, 0.3],
    ],
    "regression": [0.5, 1.5, -1.0, 3.5, 0.25, 6.0],
}


def make_config(tfma_class: str, weighted: bool = False, **options: Any) -> tfma.EvalConfig:
    """Return a config with a single metric named "x"; `options` may change its name."""
    config = json.dumps({"name": "x", **options})
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="label", example_weight_key="weight" if weighted else "")],
        metrics_specs=[tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name=tfma_class, config=config)])],
    )


def compute_by_columns(config: tfma.EvalConfig, labels: Any, predictions: Any) -> dict[Any, Any]:
    """Compute a metric by its columnar form."""
    metrics = Metrics(config)
    assert metrics.row_by_row is None
    slices = Slices([()], np.arange(len(labels)), np.zeros(len(labels), np.int64))
    results = {}
    for combiner in metrics.columnar:
        weights = WEIGHTS[: len(labels)] if combiner.is_weighted else None
        table = binned_sums.count(combiner.bins(labels, predictions), slices, weights)
        results.update(combiner.result(table.select_slice(0)))
    return evaluation.complete_results(results, metrics.parts, config)


def compute_by_rows(config: tfma.EvalConfig, labels: Any, predictions: Any) -> dict[Any, Any]:
    """Compute a metric by TFMA's combiners, one row at a time."""
    parts = evaluation.computations(config)
    results = {}
    for computation in parts.combined:
        computation.combiner.setup()
        accumulator = computation.combiner.create_accumulator()
        for label, prediction, weight in zip(labels, predictions, WEIGHTS[: len(labels)], strict=True):
            row = tfma.metrics.StandardMetricInputs(
                label=np.atleast_1d(label), prediction=np.atleast_1d(prediction), example_weight=np.atleast_1d(weight)
            )
            accumulator = computation.combiner.add_input(accumulator, row)
        results.update(computation.combiner.extract_output(accumulator))
    return evaluation.complete_results(results, parts, config)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.parametrize(
    ("task", "tfma_class", "options"),
    [
        ("binary", "ExampleCount", {}),
        ("binary", "BinaryAccuracy", {"threshold": 0.6}),
        ("binary", "BinaryAccuracy", {}),
        ("binary", "Precision", {"thresholds": 0.7}),
        ("binary", "Recall", {"thresholds": [0.3]}),
        ("binary", "F1Score", {"thresholds": 0.3}),
        ("binary", "FallOut", {"thresholds": [0.2]}),
        ("binary", "MissRate", {"thresholds": [0.4]}),
        ("binary", "PredictedPositiveRate", {"thresholds": [0.4]}),
        ("binary", "BinaryCrossEntropy", {}),
        ("binary", "MeanSquaredError", {}),
        ("multiclass", "SparseCategoricalAccuracy", {}),
        ("multiclass", "MultiClassConfusionMatrixPlot", {"thresholds": [0.0]}),
        ("regression", "MeanAbsoluteError", {}),
        ("regression", "MeanSquaredError", {}),
        ("regression", "MeanAbsolutePercentageError", {}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_value_equals_tfmas(task: str, tfma_class: str, options: dict[str, Any], weighted: bool) -> None:
    config = make_config(tfma_class, weighted, **options)
    labels, predictions = np.array(LABELS[task]), np.array(PREDICTIONS[task], np.float32)
    actual, expected = (compute(config, labels, predictions) for compute in (compute_by_columns, compute_by_rows))
    assert actual.keys() == expected.keys()
    assert {key.name for key in actual} == {"x"}
    for key, value in expected.items():
        assert type(actual[key]) is type(value) if isinstance(value, Message) else True
        assert actual[key] == (value if isinstance(value, Message) else NEAR.approx(float(value)))


@pytest.mark.parametrize("tfma_class", ["Precision", "Recall", "F1Score", "BinaryAccuracy", "MeanSquaredError"])
def test_value_without_rows_is_not_a_number(tfma_class: str) -> None:
    results = compute_by_columns(make_config(tfma_class), np.empty(0), np.empty(0, np.float32))
    assert np.isnan(list(results.values())).all()


def test_crossentropy_is_finite_for_certain_predictions_and_nan_for_invalid_probabilities() -> None:
    config = make_config("BinaryCrossEntropy")
    [certain] = compute_by_columns(config, np.array([0, 1, 0]), np.array([0.0, 1.0, 1.0])).values()
    assert certain == pytest.approx((-np.log(1e-7) - 2 * np.log1p(-1e-7)) / 3, rel=1e-9, abs=1e-12)
    [outside] = compute_by_columns(config, np.array([0, 1]), np.array([0.3, 1.2])).values()
    assert np.isnan(outside)


@pytest.mark.parametrize(
    ("tfma_class", "options"),
    [("Precision", {"top_k": 2}), ("BinaryCrossEntropy", {"label_smoothing": 0.1}), ("AUC", {}), ("Specificity", {})],
)
def test_metric_without_a_columnar_form_is_left_to_tfma(tfma_class: str, options: dict[str, Any]) -> None:
    metrics = Metrics(make_config(tfma_class, **options))
    assert metrics.row_by_row is not None
    assert not metrics.columnar


def test_user_defined_metric_with_the_name_of_a_tfma_metric_is_not_replaced() -> None:
    config = make_config("MeanSquaredError")
    config.metrics_specs[0].metrics[0].module = "my_metrics"
    assert Metrics(config).row_by_row is not None
