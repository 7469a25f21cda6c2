"""Plots and intervals count all rows, however the rows are divided, in a bounded number of buckets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.evaluator import binned_sums, tfma_results
from components.evaluator.binned_sums import Slices
from components.evaluator.plot_data import Plots
from components.evaluator.plot_metrics import BinaryDiagnostics, RegressionDiagnostics
from tests.support.data.tolerances import float64_sum


def count_plots(labels: Any, predictions: Any, pieces: int = 1) -> dict[Any, Any]:
    """Return the plots of a regression by name, computed from the given number of pieces of the rows."""
    *computations, derived, _ = RegressionDiagnostics("x").computations()
    results: dict[Any, Any] = {}
    for computation in computations:
        combiner, accumulators = computation.combiner, []
        for piece in np.array_split(np.arange(len(labels)), pieces):
            accumulator = combiner.create_accumulator()
            for row in piece:
                element = tfma.metrics.StandardMetricInputs(
                    label=labels[row : row + 1], prediction=predictions[row : row + 1], example_weight=np.array([1.0])
                )
                accumulator = combiner.add_input(accumulator, element)
            accumulators.append(accumulator)
        results |= combiner.extract_output(combiner.merge_accumulators(accumulators))
    output = derived.result(results)
    return {key.name: value for key, value in output.items()}


def sums(actual: Any) -> tuple[float, float, float]:
    buckets = actual.buckets
    return (
        sum(bucket.num_weighted_examples.value for bucket in buckets),
        sum(bucket.total_weighted_label.value for bucket in buckets),
        sum(bucket.total_weighted_refined_prediction.value for bucket in buckets),
    )


@pytest.mark.parametrize("share", [0.5, 0.002])
def test_binary_plot_has_all_rows_in_few_buckets(share: float) -> None:
    random = np.random.default_rng(1)
    predictions = random.beta(1, 1 / share, 4000)
    labels = (random.uniform(size=4000) < predictions).astype(float)
    [counting, derived, _] = BinaryDiagnostics("x", ["auc"]).computations()
    bins, summands = counting.combiner.bins(labels, predictions)
    slices = Slices([()], np.arange(4000), np.zeros(4000, np.int64))
    table = binned_sums.count((bins, summands), slices, ordered=True)
    [actual] = derived.result(counting.combiner.result(table.select_slice(0))).values()
    assert sums(actual) == float64_sum(4000).approx((4000, labels.sum(), predictions.sum()))
    assert 10 < len(actual.buckets) <= 400
    edges = [(bucket.lower_threshold_inclusive, bucket.upper_threshold_exclusive) for bucket in actual.buckets]
    assert all(low <= high <= after for (low, high), (after, _) in itertools.pairwise(edges))
    assert not any(low < 0.5 < high for low, high in edges)


@pytest.mark.extended
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e60, 1e290])
@pytest.mark.parametrize("pieces", [1, 5])
def test_regression_plots_have_all_rows_in_few_buckets_however_they_are_divided(scale: float, pieces: int) -> None:
    random = np.random.default_rng(2)
    predictions = random.normal(0, 3, 1500) * scale
    labels = predictions + random.normal(1, 1, 1500) * scale
    actual = count_plots(labels, predictions, pieces)
    assert set(actual) == {"calibration_plot", "residuals"}
    near = float64_sum(1500, largest=np.abs(predictions).max())
    rows, *totals = sums(actual["calibration_plot"])
    assert (rows, totals) == (1500, near.approx([labels.sum(), predictions.sum()]))
    rows, *totals = sums(actual["residuals"])
    assert (rows, totals) == (1500, near.approx([0, (labels - predictions).sum()]))
    for plot in actual.values():
        assert len(plot.buckets) <= 200
        edges = [(bucket.lower_threshold_inclusive, bucket.upper_threshold_exclusive) for bucket in plot.buckets]
        assert np.isfinite(edges).all()
        assert edges == sorted(edges)


def test_bucket_of_a_number_contains_it() -> None:
    for value in (-1e299, -7.25, -1e-11, 0.0, 1e-13, 3e-12, 0.1, 1.0, 12345.678, 1e299):
        [bucket] = count_plots(np.array([0.0]), np.array([value]))["calibration_plot"].buckets
        margin = abs(value) * 1e-9 + 1e-12
        assert bucket.lower_threshold_inclusive - margin <= value <= bucket.upper_threshold_exclusive + margin


def test_nan_predictions_are_not_counted() -> None:
    actual = count_plots(np.array([1.0, 1.0]), np.array([0.5, np.nan]))
    assert sums(actual["calibration_plot"]) == (1, 1, 0.5)
    assert count_plots(np.array([1.0]), np.array([np.nan])) == {}


def test_plot_without_rows_is_empty() -> None:
    *counting, derived, bounded = BinaryDiagnostics("x", ["auc"]).computations()
    results: dict[Any, Any] = {}
    for computation in counting:
        results |= computation.combiner.extract_output(computation.combiner.create_accumulator())
    [actual] = derived.result(results).values()
    assert not actual.buckets
    key = tfma.metrics.MetricKey("auc")
    assert bounded.result({**results, key: 0.0}) == {key: 0.0}


def test_buckets_with_infinite_sums_are_left_out(tmp_path: Path) -> None:
    record = protos.PlotsForSlice()
    buckets = record.plot_keys_and_values.add().value.calibration_histogram_buckets.buckets
    for total in (1.0, float("inf")):
        buckets.add(num_weighted_examples={"value": 2.0}, total_weighted_label={"value": total})
    with tf.io.TFRecordWriter(str(tmp_path / "plots-00000-of-00001.tfrecord")) as writer:
        writer.write(record.SerializeToString())
    actual = tfma_results.plots(str(tmp_path), "regression")
    assert [bucket.labels for bucket in actual.candidate.predictions] == [1.0]
    assert Plots.from_json(actual.to_json()) == actual


def write_and_read(folder: Path, *matrices: tuple[str, dict[tuple[int, int], float]]) -> Plots:
    """Write the confusion matrices of some models; return the plots that are read back."""
    record = protos.PlotsForSlice()
    for model, matrix in matrices:
        plots = record.plot_keys_and_values.add(key={"model_name": model})
        actual = plots.value.multi_class_confusion_matrix_at_thresholds.matrices.add(threshold=0.0)
        for (label, prediction), rows in matrix.items():
            actual.entries.add(actual_class_id=label, predicted_class_id=prediction, num_weighted_examples=rows)
    slice_record = protos.PlotsForSlice(slice_key={"single_slice_keys": [{"column": "a", "int64_value": 1}]})
    slice_record.plot_keys_and_values.add().value.multi_class_confusion_matrix_at_thresholds.matrices.add()
    with tf.io.TFRecordWriter(str(folder / "plots-00000-of-00001.tfrecord")) as writer:
        for plots_record in (slice_record, record):
            writer.write(plots_record.SerializeToString())
    return tfma_results.plots(str(folder), "multiclass")


def test_confusion_matrix_keeps_the_20_most_frequent_classes(tmp_path: Path) -> None:
    matrix = {(number, number): 10.0 + number for number in range(1000)} | {(999, 3): 7.0, (4, 998): 2.0, (-1, 5): 1.0}
    actual = write_and_read(tmp_path, ("", matrix)).candidate.confusion
    assert actual is not None
    assert actual.classes == tuple(range(980, 1000))
    assert actual.others == 981
    assert len(actual.counts) == 21
    assert sum(map(sum, actual.counts)) == sum(matrix.values())
    assert actual.counts[19][20] == 7.0
    assert actual.counts[20][18] == 2.0


def test_baseline_with_other_classes_is_left_out(tmp_path: Path) -> None:
    entries = {(0, 0): 5.0, (1, 1): 3.0, (1, 0): 1.0}
    actual = write_and_read(
        tmp_path, ("candidate", entries), ("baseline", {(0, 0): 4.0, (1, 0): 1.0, (0, 7): 1.0, (1, 1): 3.0})
    )
    assert actual.baseline is not None
    assert actual.baseline.confusion is not None
    assert actual.baseline.confusion.classes == (0, 1, 7)
    assert actual.baseline.confusion.counts == ((4.0, 0.0, 1.0), (1.0, 3.0, 0.0), (0.0, 0.0, 0.0))
    actual = write_and_read(tmp_path, ("candidate", entries), ("baseline", {(0, 0): 4.0, (1, 1): 5.0}))
    assert actual.candidate.confusion is not None
    assert actual.baseline is None


def test_metric_with_an_interval_keeps_it_in_a_binary_task() -> None:
    random = np.random.default_rng(3)
    predictions = random.uniform(size=500)
    labels = (random.uniform(size=500) < predictions).astype(float)
    [counting, _, intervals] = BinaryDiagnostics("x", ["auc", "gain"]).computations()
    bins, summands = counting.combiner.bins(labels, predictions)
    slices = Slices([()], np.arange(500), np.zeros(500, np.int64))
    table = binned_sums.count((bins, summands), slices, ordered=True)
    results = counting.combiner.result(table.select_slice(0))
    area, gain = (tfma.metrics.MetricKey(name=name) for name in ("auc", "gain"))
    results |= {area: 0.8, gain: protos.BoundedValue(value={"value": 2.0})}
    with_intervals = intervals.result(results)
    assert set(with_intervals) == {area}
    assert 0 < with_intervals[area].lower_bound.value < 0.8 < with_intervals[area].upper_bound.value < 1
