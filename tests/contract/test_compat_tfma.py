"""The undocumented parts of TFMA that components.compat.tfma uses exist, with the parameters that it passes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as writer
from tensorflow_model_analysis.metrics import calibration_histogram, metric_types, metric_util
from tolerances import rounding

from components.compat import tfma as compat
from components.compat.tfma import columnar, evaluation

pytestmark = pytest.mark.both_lines
NEAR = rounding(8)
"""Tolerance of sums of six rows whose predictions are float32."""
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


def test_buckets_have_our_fields() -> None:
    fields = {"bucket_id", "weighted_labels", "weighted_predictions", "weighted_examples"}
    assert fields <= set(inspect.signature(calibration_histogram.Bucket).parameters)
    assert compat.PREDICTIONS_PLOT == "calibration_plot"


def test_interval_computations_are_derived_ones() -> None:
    key = tfma.metrics.MetricKey("x")
    assert isinstance(compat.interval_computation(key, dict), metric_types.DerivedMetricComputation)


def test_private_metric_is_not_written() -> None:
    message = "TFMA no longer hides metrics whose name begins with _: change compat.tfma.private"
    assert writer._is_private_metrics(tfma.metrics.MetricKey(compat.private("x"))), message
    assert not writer._is_private_metrics(tfma.metrics.MetricKey("x")), message


LABELS = {
    "binary": [0, 1, 1, 0, 1, 1],
    "multiclass": [0, 2, -1, 1, 1, 2],
    "regression": [0.0, 1.5, -2.0, 3.25, 0.5, 7.0],
}
PREDICTIONS = {
    "binary": [0.0, 1.0, 0.5, 0.25, 0.9999, 0.30004],
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


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("binary", tfma.metrics.ExampleCount()),
        ("binary", tfma.metrics.AUC()),
        # TFMA counts a prediction that equals the threshold as negative, this project's columns count it as positive.
        ("binary", tfma.metrics.BinaryAccuracy(threshold=0.6)),
        ("binary", tfma.metrics.Precision(thresholds=[0.7, 0.3])),
        ("binary", tfma.metrics.BinaryCrossEntropy()),
        ("multiclass", tfma.metrics.MultiClassConfusionMatrixPlot(thresholds=[0.0])),
        ("regression", tfma.metrics.MeanAbsoluteError()),
        ("regression", tfma.metrics.MeanSquaredError()),
        ("regression", tfma.metrics.MeanAbsolutePercentageError()),
        ("regression", tfma.metrics.MeanSquaredLogarithmicError()),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_columnar_counterpart_has_the_result_of_the_combiner(task: str, metric: Any, weighted: bool) -> None:
    computation = metric.computations(example_weighted=weighted)[0]
    assert columnar.is_weighted(computation) is weighted
    weights = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 1.5]) if weighted else np.ones(6)
    form = columnar.counterpart(computation)
    message = f"TFMA changed {computation.combiner}: change compat.tfma.columnar"
    assert form is not None, message
    labels, predictions = np.array(LABELS[task]), np.array(PREDICTIONS[task], np.float32)
    # The crossentropy of a certain prediction is undefined: TFMA takes the logarithm of a negative number and warns.
    rows = {"MeanSquaredLogarithmicError": [0, 1, 3, 4, 5], "BinaryCrossEntropy": [2, 3, 4, 5]}.get(
        type(metric).__name__, list(range(6))
    )
    combiner, accumulator = computation.combiner, computation.combiner.create_accumulator()
    for row in rows:
        example = tfma.metrics.StandardMetricInputs(
            label=labels[row : row + 1], prediction=np.atleast_1d(predictions[row]), example_weight=weights[row]
        )
        accumulator = combiner.add_input(accumulator, example)
    ((key, expected),) = combiner.extract_output(accumulator).items()
    bins, summands = form.bins(labels[rows], predictions[rows])
    distinct, at = np.unique(bins, return_inverse=True)
    sums = (
        np.stack([np.bincount(at, weights[rows] * summand) for summand in summands.T], axis=1)
        if summands.size
        else np.empty((len(distinct), 0))
    )
    ((own_key, actual),) = form.result(columnar.Sums(distinct, np.bincount(at, weights[rows]), sums)).items()
    assert own_key == key
    if isinstance(expected, float | np.floating):
        assert actual == NEAR.approx(float(expected)), message
    else:
        assert repr(actual) == repr(expected) or plain(actual) == plain(expected), message


def plain(value: Any) -> Any:
    """Return a result as nested lists of numbers."""
    if isinstance(value, calibration_histogram.Bucket):
        return NEAR.approx(
            [value.bucket_id, value.weighted_labels, value.weighted_predictions, value.weighted_examples]
        )
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def test_counterparts_of_what_our_columns_do_not_compute_are_missing() -> None:
    by_class = tfma.metrics.Precision(top_k=2).computations(example_weighted=False)[0]
    smoothed = tfma.metrics.BinaryCrossEntropy(label_smoothing=0.1).computations(example_weighted=False)[0]
    assert [columnar.counterpart(metric) for metric in (by_class, smoothed)] == [None] * 2


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
    assert evaluation.unsupported(text_format.Parse(text, tfma.EvalConfig())) == field


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_matrices_of_an_auc_are_those_of_tfma(rows: int) -> None:
    config = text_format.Parse("metrics_specs { metrics { class_name: 'AUC' } }", tfma.EvalConfig())
    parts = evaluation.computations(config)
    form = columnar.counterpart(parts.combined[0])
    assert form is not None
    random = np.random.default_rng(rows)
    predictions = random.choice([0.0, 1.0, 1.5, -0.5, 0.3, *random.uniform(size=200)], rows)
    bins, summands = form.bins(random.integers(0, 2, rows), predictions)
    distinct, at = np.unique(bins, return_inverse=True)
    sums = np.stack([np.bincount(at, summand, len(distinct)) for summand in summands.T], axis=1)
    histogram = form.result(columnar.Sums(distinct, np.bincount(at, minlength=len(distinct)).astype(float), sums))
    matrices, _ = parts.derived
    (expected,) = matrices.result(histogram).values()
    actual = evaluation._matrices(matrices.keys[0], histogram)
    assert actual == expected, "TFMA changed its matrices: change compat.tfma.evaluation"
    assert evaluation._matrices(parts.derived[1].keys[0], histogram) is None
