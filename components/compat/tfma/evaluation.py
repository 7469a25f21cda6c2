"""Steps of TFMA's evaluation: the computations of a config, the metrics derived from their results, and the files.

TFMA offers these steps only inside a Beam transform that takes examples one by one. Checked with TFMA 0.47 and 0.52.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as evaluator
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import validation_result_pb2
from tensorflow_model_analysis.utils import model_util
from tensorflow_model_analysis.writers import eval_config_writer
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer

SliceKey = tuple[tuple[str, Any], ...]
"""Pairs (column, value) of a slice, sorted by column. Empty for the whole split."""
Results = dict[Any, Any]
"""Values of metrics and plots, by TFMA's metric key or plot key."""


class Computations(NamedTuple):
    """The computations of a config without duplicates. A computation comes after the computations it depends on."""

    combined: list[metric_types.MetricComputation]
    derived: list[metric_types.DerivedMetricComputation]
    intervals: list[metric_types.CIDerivedMetricComputation]


def computations(eval_config: tfma.EvalConfig) -> Computations:
    """Return the computations of all metrics of a config."""
    parts = evaluator._filter_and_separate_computations(
        metric_specs.to_computations(list(eval_config.metrics_specs), eval_config=eval_config)
    )
    return Computations(parts.non_derived_computations, parts.derived_computations, parts.ci_derived_computations)


def find_unsupported(eval_config: tfma.EvalConfig) -> str | None:
    """Return the name of a feature in a config that only TFMA's Beam pipeline supports. None if there is none."""
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
    """TFMA's combiners for some computations, which receive one row at a time."""

    def __init__(self, combined: list[metric_types.MetricComputation]) -> None:
        self._inputs = evaluator._PreprocessorDoFn(combined)
        self._combiner = evaluator._ComputationsCombineFn(combined)
        self._inputs.setup()
        self._combiner.setup()

    def add(self, accumulators: dict[SliceKey, Any], slices: Iterable[SliceKey], row: dict[str, Any]) -> None:
        """Add a row to the accumulators of its slices.

        Args:
          accumulators: Accumulators by slice. Missing accumulators are created.
          slices: Slices that contain the row.
          row: Output of TFMA's extractors: `labels`, `predictions`, `example_weights`, `features`,
            `transformed_features`.
        """
        for inputs in self._inputs.process({**row, constants.SLICE_KEY_TYPES_KEY: []}):
            for key in slices:
                accumulator = accumulators[key] if key in accumulators else self._combiner.create_accumulator()
                accumulators[key] = self._combiner.add_input(accumulator, inputs)

    def merge(self, accumulators: Iterable[Any]) -> Any:
        """Merge the accumulators of a slice into an accumulator that can be pickled."""
        return self._combiner.compact(self._combiner.merge_accumulators(accumulators))

    def results(self, accumulator: Any) -> Results:
        """Return the results of a slice."""
        return dict(self._combiner.extract_output(accumulator))


def complete_results(combined: Results, parts: Computations, eval_config: tfma.EvalConfig) -> Results:
    """Add derived metrics, differences to the baseline and intervals to the results of a slice, as TFMA does.

    Args:
      combined: Results of `parts.combined`.
      parts: Computations of the config.
      eval_config: The config.

    Returns:
      All results except the private ones.
    """
    results = dict(combined)
    for derived in parts.derived:
        results.update(derived.result(results))
    baseline = model_util.get_baseline_model_spec(eval_config)
    if baseline:
        results.update(_differences(results, baseline.name))
    for interval in parts.intervals:
        results.update(interval.result(results))
    return {key: value for key, value in results.items() if not evaluator._is_private_metrics(key)}


def _differences(results: Results, baseline: str) -> Results:
    differences = {}
    for key, value in results.items():
        if evaluator._is_private_metrics(key) or key.is_diff or key.model_name == baseline:
            continue
        baseline_key = key.make_baseline_key(baseline)
        if baseline_key in results and evaluator._is_metric_diffable(value):
            differences[key.make_diff_key()] = value - results[baseline_key]
    return differences


def write(
    folder: str, slices: Mapping[SliceKey, Results], eval_config: tfma.EvalConfig, models: Mapping[str, str]
) -> None:
    """Write the files that TFMA's loaders read: metrics, plots, attributions, validations and the config.

    Args:
      folder: Existing folder, local or remote.
      slices: Results by slice.
      eval_config: The config.
      models: Folders of the models, by the name of the model in the config. TFMA shows them only.
    """
    records: dict[str, list[Any]] = {"metrics": [], "plots": [], "attributions": []}
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
    """A check that failed.

    Attributes:
      slice: Values of the slice, by column. Empty for the whole split.
      metric: Name of the metric.
      value: Value of the metric. None if it is unknown.
      message: Description of the failed check.
    """

    slice: Mapping[str, str]
    metric: str
    value: float | None
    message: str


def write_validation(folder: str, blessed: bool, failures: Iterable[Failure]) -> None:
    """Replace TFMA's validation result by the verdict of this project's gate.

    TFMA does not receive thresholds, so its result would accept every model.

    Args:
      folder: Folder of the evaluation, local or remote.
      blessed: Whether the model is blessed.
      failures: Checks that did not pass.
    """
    result = validation_result_pb2.ValidationResult(validation_ok=blessed)
    by_slice: dict[tuple[tuple[str, str], ...], Any] = {}
    for failure in failures:
        key = tuple(sorted(failure.slice.items()))
        if key not in by_slice:
            by_slice[key] = result.metric_validations_per_slice.add()
            for column, value in key:
                by_slice[key].slice_key.single_slice_keys.add(column=column, bytes_value=value.encode())
        failed_metric = by_slice[key].failures.add(message=failure.message)
        failed_metric.metric_key.name = failure.metric
        if failure.value is not None:
            failed_metric.metric_value.double_value.value = failure.value
    for path in tf.io.gfile.glob(f"{folder}/{constants.VALIDATIONS_KEY}*"):
        tf.io.gfile.remove(path)
    _write_records(f"{folder}/{constants.VALIDATIONS_KEY}.tfrecord", [result])


def _write_records(path: str, messages: Iterable[Any]) -> None:
    with tf.io.TFRecordWriter(path) as file:
        for message in messages:
            file.write(message.SerializeToString())
