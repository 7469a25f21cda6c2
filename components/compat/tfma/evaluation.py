"""TFMA's evaluation in parts: the computations of a config, what follows from their results, and its result files.

TFMA has these steps only inside of a Beam transform that takes examples one by one. Checked with TFMA 0.47 and 0.52.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as evaluator
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    calibration_histogram,
    metric_specs,
    metric_types,
)
from tensorflow_model_analysis.proto import validation_result_pb2
from tensorflow_model_analysis.utils import model_util
from tensorflow_model_analysis.writers import eval_config_writer
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer

SliceKey = tuple[tuple[str, Any], ...]
"""(column, value) of each column of a slice, sorted; empty for all rows."""
Results = dict[Any, Any]
"""TFMA's key → the value of a metric or plot."""


class Computations(NamedTuple):
    """The computations of a config, without duplicates, in the order in which they depend on each other."""

    combined: list[metric_types.MetricComputation]
    derived: list[metric_types.DerivedMetricComputation]
    intervals: list[metric_types.CIDerivedMetricComputation]


def computations(eval_config: tfma.EvalConfig) -> Computations:
    """Return the computations of all metrics of a config."""
    parts = evaluator._filter_and_separate_computations(
        metric_specs.to_computations(list(eval_config.metrics_specs), eval_config=eval_config)
    )
    return Computations(parts.non_derived_computations, parts.derived_computations, parts.ci_derived_computations)


def unsupported(eval_config: tfma.EvalConfig) -> str | None:
    """Return a part of a config that needs TFMA's own pipeline; None if there is none."""
    options, models, metrics = eval_config.options, eval_config.model_specs, eval_config.metrics_specs
    reasons = {
        "slicing by SQL": any(spec.slice_keys_sql for spec in eval_config.slicing_specs),
        "cross slices": eval_config.cross_slicing_specs,
        "example weights of several outputs": any(spec.example_weight_keys for spec in models),
        "several outputs": any(spec.label_keys or spec.prediction_keys for spec in models),
        "query_key": any(spec.query_key for spec in metrics),
        "compute_confidence_intervals": options.compute_confidence_intervals.value,
        "min_slice_size": options.min_slice_size.value > 1,
        "disabled_outputs": options.disabled_outputs.values,
    }
    return next((name for name, value in reasons.items() if value), None)


class RowByRow:
    """TFMA's own combiners of some computations, which take one row at a time."""

    def __init__(self, combined: list[metric_types.MetricComputation]) -> None:
        self._inputs = evaluator._PreprocessorDoFn(combined)
        self._combiner = evaluator._ComputationsCombineFn(combined)
        self._inputs.setup()
        self._combiner.setup()

    def add(self, accumulators: dict[SliceKey, Any], slices: Iterable[SliceKey], row: dict[str, Any]) -> None:
        """Add a row to the accumulators of its slices.

        Args:
          accumulators: slice → accumulator; missing ones are added.
          slices: the row's slices.
          row: what TFMA's extractors return: `labels`, `predictions`, `example_weights`, `features`,
            `transformed_features`.
        """
        for inputs in self._inputs.process({**row, constants.SLICE_KEY_TYPES_KEY: []}):
            for key in slices:
                accumulator = accumulators[key] if key in accumulators else self._combiner.create_accumulator()
                accumulators[key] = self._combiner.add_input(accumulator, inputs)

    def merged(self, accumulators: Iterable[Any]) -> Any:
        """Merge the accumulators of one slice to one that can be pickled."""
        return self._combiner.compact(self._combiner.merge_accumulators(accumulators))

    def results(self, accumulator: Any) -> Results:
        """Return the results of a slice."""
        return dict(self._combiner.extract_output(accumulator))


def completed(combined: Results, parts: Computations, eval_config: tfma.EvalConfig) -> Results:
    """Add to the results of a slice what follows from them, as TFMA does: derived metrics, differences, intervals.

    Args:
      combined: the results of `parts.combined`.
      parts: the config's computations.
      eval_config: the config.

    Returns:
      All results, without the private ones.
    """
    results = dict(combined)
    for derived in parts.derived:
        matrices = _matrices(derived.keys[0], results)
        results.update(derived.result(results) if matrices is None else {derived.keys[0]: matrices})
    baseline = model_util.get_baseline_model_spec(eval_config)
    if baseline:
        results.update(_differences(results, baseline.name))
    for interval in parts.intervals:
        results.update(interval.result(results))
    return {key: value for key, value in results.items() if not evaluator._is_private_metrics(key)}


_MATRICES = f"_binary_confusion_matrices:num_thresholds={binary_confusion_matrices.DEFAULT_NUM_THRESHOLDS}"
_EPSILON = binary_confusion_matrices._EPSILON


def _matrices(key: Any, results: Results) -> binary_confusion_matrices.Matrices | None:
    """Return the confusion matrices of an AUC, from its histogram; None if the key is another one.

    TFMA takes 24 ms for this, in each slice and model, and the result is equal to the last bit.
    """
    if key.name != _MATRICES or key.sub_key or key.aggregation_type:
        return None
    [computation] = calibration_histogram.calibration_histogram(
        model_name=key.model_name, output_name=key.output_name, example_weighted=key.example_weighted
    )
    if computation.keys[-1] not in results:
        return None
    thresholds = binary_confusion_matrices._interpolated_thresholds(binary_confusion_matrices.DEFAULT_NUM_THRESHOLDS)
    columns = np.array(
        [
            (bucket.bucket_id, bucket.weighted_labels, bucket.weighted_examples - bucket.weighted_labels)
            for bucket in results[computation.keys[-1]]
        ]
    ).reshape(-1, 3)
    edges = (columns[:, 0] - 1) / calibration_histogram.DEFAULT_NUM_BUCKETS
    edges[columns[:, 0] == 0], edges[edges >= 1] = -np.inf, np.inf
    # An edge counts as above a threshold from which it differs by a rounding error.
    shifted = np.array([each + _EPSILON if each else each for each in thresholds])
    at = np.maximum(np.searchsorted(shifted, edges, side="right") - 1, 0)
    above, below = [], []
    for counts in (columns[:, 1], columns[:, 2]):
        by_threshold = np.bincount(at, counts, len(thresholds))
        above.append(np.cumsum(by_threshold[::-1])[::-1])
        below.append(np.concatenate([[0.0], np.cumsum(by_threshold)[:-1]]))
        above[-1][-1], below[-1][-1] = 0.0, above[-1][0]
    (tp, fp), (fn, tn) = above, below
    return binary_confusion_matrices.Matrices(thresholds, tp.tolist(), tn.tolist(), fp.tolist(), fn.tolist())


def _differences(results: Results, baseline: str) -> Results:
    differences = {}
    for key, value in results.items():
        if evaluator._is_private_metrics(key) or key.is_diff or key.model_name == baseline:
            continue
        other = key.make_baseline_key(baseline)
        if other in results and evaluator._is_metric_diffable(value):
            differences[key.make_diff_key()] = value - results[other]
    return differences


def write(
    folder: str, slices: Mapping[SliceKey, Results], eval_config: tfma.EvalConfig, models: Mapping[str, str]
) -> None:
    """Write the files that TFMA's loaders read: metrics, plots, attributions, validations and the config.

    Args:
      folder: an existing folder, local or remote.
      slices: slice → its results.
      eval_config: the config.
      models: name of each model in the config → its folder, for display.
    """
    records: dict[str, list[Any]] = {each: [] for each in ("metrics", "plots", "attributions")}
    checks = writer.CombineValidations(eval_config, rubber_stamp=constants.BASELINE_KEY not in models)
    check = checks.create_accumulator()
    for slice_key, results in slices.items():
        metrics, plots, attributions = (
            evaluator._filter_by_key_type((slice_key, results), kind)
            for kind in (metric_types.MetricKey, metric_types.PlotKey, metric_types.AttributionsKey)
        )
        records["metrics"].append(writer.convert_slice_metrics_to_proto(metrics, add_metrics_callbacks=[]))
        records["plots"].append(writer.convert_slice_plots_to_proto(plots, add_metrics_callbacks=[]))
        records["attributions"].append(writer.convert_slice_attributions_to_proto(attributions))
        check = checks.add_input(check, metrics_validator.validate_metrics(metrics, eval_config))
    for name, messages in records.items():
        _write_records(f"{folder}/{name}-00000-of-00001.tfrecord", messages)
    _write_records(f"{folder}/validations.tfrecord", [checks.extract_output(check)])
    text = eval_config_writer._serialize_eval_run(eval_config, "<user provided PCollection>", "<unknown>", models)
    with tf.io.gfile.GFile(f"{folder}/eval_config.json", "w") as file:
        file.write(text + "\n")


class Failure(NamedTuple):
    """A check that failed: the slice as column → value, the metric, its value (None if unknown), and a message."""

    slice: Mapping[str, str]
    metric: str
    value: float | None
    message: str


def write_validation(folder: str, blessed: bool, failures: Iterable[Failure]) -> None:
    """Replace TFMA's validation result by the verdict of our gate.

    TFMA gets no thresholds, and its own result is ok for every model.

    Args:
      folder: Folder of the evaluation, local or remote.
      blessed: Whether the model is blessed.
      failures: Checks that did not pass.
    """
    result = validation_result_pb2.ValidationResult(validation_ok=blessed)
    of_slices: dict[tuple[tuple[str, str], ...], Any] = {}
    for failure in failures:
        key = tuple(sorted(failure.slice.items()))
        if key not in of_slices:
            of_slices[key] = result.metric_validations_per_slice.add()
            for column, value in key:
                of_slices[key].slice_key.single_slice_keys.add(column=column, bytes_value=value.encode())
        added = of_slices[key].failures.add(message=failure.message)
        added.metric_key.name = failure.metric
        if failure.value is not None:
            added.metric_value.double_value.value = failure.value
    for path in tf.io.gfile.glob(f"{folder}/{constants.VALIDATIONS_KEY}*"):
        tf.io.gfile.remove(path)
    _write_records(f"{folder}/{constants.VALIDATIONS_KEY}.tfrecord", [result])


def _write_records(path: str, messages: Iterable[Any]) -> None:
    with tf.io.TFRecordWriter(path) as file:
        for message in messages:
            file.write(message.SerializeToString())
