"""The undocumented parts of TFMA that components.compat.tfma uses exist, with the parameters that it passes."""

from __future__ import annotations

import inspect

import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as writer
from tensorflow_model_analysis.metrics import metric_types, metric_util

from components.compat import tfma as compat
from components.compat.tfma import evaluation

pytestmark = pytest.mark.both_lines
KEY = {"model_name": "", "output_name": "", "example_weighted": False}


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (metric_util.to_label_prediction_example_weight, {"inputs", "eval_config", "flatten", *KEY}),
        (metric_types.CIDerivedMetricComputation, {"keys", "result"}),
    ],
)
def test_functions_take_our_arguments(function: object, parameters: set[str]) -> None:
    actual = set(inspect.signature(function).parameters)
    assert parameters <= actual, f"TFMA changed {function}: it lacks {parameters - actual}; change compat.tfma"


def test_plot_of_predictions_has_the_name_that_readers_look_for() -> None:
    assert compat.PREDICTIONS_PLOT == "calibration_plot"


def test_interval_computations_are_derived_ones() -> None:
    key = tfma.metrics.MetricKey("x")
    assert isinstance(compat.interval_computation(key, dict), metric_types.DerivedMetricComputation)


def test_private_metric_is_not_written() -> None:
    message = "TFMA no longer hides metrics whose name begins with _: change compat.tfma.private"
    assert writer._is_private_metrics(tfma.metrics.MetricKey(compat.private("x"))), message
    assert not writer._is_private_metrics(tfma.metrics.MetricKey("x")), message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("cross_slicing_specs { baseline_spec {} }", "cross slices"),
        ("slicing_specs { slice_keys_sql: 'SELECT STRUCT(a)' }", "slicing by SQL"),
        ("model_specs { example_weight_keys { key: 'a' value: 'w' } }", "example weights of several outputs"),
        ("model_specs { label_keys { key: 'a' value: 'b' } }", "several outputs"),
        ("metrics_specs { query_key: 'q' }", "query_key"),
        ("options { compute_confidence_intervals { value: true } }", "compute_confidence_intervals"),
        ("options { min_slice_size { value: 5 } }", "min_slice_size"),
        ("options { disabled_outputs { values: 'plots' } }", "disabled_outputs"),
        ("slicing_specs {} model_specs { label_key: 'a' } options { min_slice_size { value: 1 } }", None),
        ("model_specs { label_key: 'a' example_weight_key: 'w' }", None),
    ],
)
def test_config_that_needs_tfmas_own_pipeline_is_recognised(text: str, field: str | None) -> None:
    assert evaluation.find_unsupported(text_format.Parse(text, tfma.EvalConfig())) == field
