"""The undocumented parts of TFMA that components.compat.tfma uses exist, with the parameters that it passes."""

from __future__ import annotations

import inspect

import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as writer
from tensorflow_model_analysis.metrics import calibration_histogram, metric_types, metric_util

from components.compat import tfma as compat

pytestmark = pytest.mark.both_lines
KEY = {"model_name": "", "output_name": "", "example_weighted": False}


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (calibration_histogram.calibration_histogram, {"eval_config", *KEY}),
        (metric_util.to_label_prediction_example_weight, {"inputs", "eval_config", "flatten", *KEY}),
        (metric_types.CIDerivedMetricComputation, {"keys", "result"}),
    ],
)
def test_functions_take_our_arguments(function: object, parameters: set[str]) -> None:
    actual = set(inspect.signature(function).parameters)
    assert parameters <= actual, f"TFMA changed {function}: it lacks {parameters - actual}; change compat.tfma"


def test_histogram_is_the_last_key() -> None:
    [*_, last] = compat.histogram_computations(None, **KEY)
    assert "histogram" in last.keys[-1].name
    fields = {"bucket_id", "weighted_labels", "weighted_predictions", "weighted_examples"}
    assert fields <= set(inspect.signature(calibration_histogram.Bucket).parameters)
    assert (compat.HISTOGRAM_BUCKETS, compat.PREDICTIONS_PLOT) == (10_000, "calibration_plot")


def test_interval_computations_are_derived_ones() -> None:
    key = tfma.metrics.MetricKey("x")
    assert isinstance(compat.interval_computation(key, dict), metric_types.DerivedMetricComputation)


def test_private_metric_is_not_written() -> None:
    message = "TFMA no longer hides metrics whose name begins with _: change compat.tfma.private"
    assert writer._is_private_metrics(tfma.metrics.MetricKey(compat.private("x"))), message
    assert not writer._is_private_metrics(tfma.metrics.MetricKey("x")), message
