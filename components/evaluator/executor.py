"""The Evaluator's executors: the metrics are computed from columns or by TFX's executor; then the gate decides."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tfx.components.evaluator import constants
from tfx.components.evaluator import executor as stock
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, path_utils, proto_utils

from components.base.errors import MachineError
from components.compat.tfma import evaluation
from components.data import example_artifacts
from components.evaluator import (
    importance,
    leakage_sample,
    mistakes,
    permutation,
    plot_data,
    saved_model,
    tfma_results,
    verdict,
    worst_mistakes,
)
from components.evaluator.baseline import usable_baseline
from components.evaluator.columnar import Evaluate, Evaluation, Metrics
from components.evaluator.eval_config import at_least, eval_config
from components.evaluator.gate import judge
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.evaluator.plan import EvaluationPlan
from components.evaluator.ranking_metrics import refused
from components.evaluator.verdict import Measured, SliceMetrics, Verdict
from components.features.leakage import Leakage

FORCED = "forced"
"""Property of the blessing of a model that was blessed although checks failed: the user's reason."""
_SPLIT = "eval"

Inputs = dict[str, list[Artifact]]


class OneLabel(NamedTuple):
    """The only label, or one of several.

    Attributes:
      plan: of its evaluation.
      folder: of its files.
      config: TFMA's config.
    """

    plan: EvaluationPlan
    folder: str
    config: tfma.EvalConfig


class StockExecutor(stock.Executor):  # type: ignore[misc]
    """TFX's Evaluator without thresholds, so that it blesses no model, and the gate's verdict on its metrics.

    All bounds are checked by the gate: TFMA's thresholds support neither slices with too few rows, nor gaps between
    groups, nor a forced blessing.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: Inputs,
        output_dict: Inputs,
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluate the model and write the verdict.

        Args:
          input_dict: `examples`, `model`, and `baseline_model` if there is one.
          output_dict: `evaluation` gets TFMA's files, with the verdict as their validation result, `verdict.json`,
            `plots.json`, `importance.json`, and of images `mistakes.json`, of several labels those of the first one
            and those of the others in a folder of each;
            `blessing` gets the properties that TFX's Evaluator sets.
          exec_properties: those of TFX's Evaluator, and `plan`, an EvaluationPlan as JSON.

        Raises:
          Exception: the evaluation could not finish; there is no verdict then, and nothing is cached.
        """
        input_dict = usable_baseline(input_dict)
        plan = EvaluationPlan.model_validate_json(exec_properties["plan"])
        folder = artifact_utils.get_single_uri(output_dict[keys.EVALUATION_KEY])
        labels = _of_labels(plan, folder, exec_properties)
        self._evaluate(labels, input_dict, output_dict, exec_properties)
        verdicts = {each.plan.label_name: _judged(each, input_dict) for each in labels}
        result = verdict.joined(verdicts) if plan.labels else verdicts[""]
        for check in result.checks:
            logging.info("%s: %s", "pass" if check.passed else "fail", check)
        for warning in result.warnings:
            logging.warning("%s", warning)
        with fileio.open(f"{folder}/{verdict.FILE}", "w") as file:
            file.write(result.to_json())
        # The folder of the first label is the artifact's own: its readers look for the verdict of all labels.
        for each in labels:
            _validate(each.folder, result if each.folder == folder else verdicts[each.plan.label_name])
        _bless(result, input_dict, artifact_utils.get_single_instance(output_dict[keys.BLESSING_KEY]))

    def _evaluate(
        self, labels: Sequence[OneLabel], input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        """Write TFMA's files."""
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        if example_artifacts.format_of(examples) == "parquet":
            # TFX's executor reads serialized rows, which columns do not have.
            records = example_artifacts.write_tfrecords(examples, f"{self._get_tmp_dir()}/examples", [_SPLIT])
            input_dict = {**input_dict, keys.EXAMPLES_KEY: [records]}
        for each in labels:
            evaluation_ = copy.deepcopy(artifact_utils.get_single_instance(output_dict[keys.EVALUATION_KEY]))
            evaluation_.uri = each.folder
            config = {keys.EVAL_CONFIG_KEY: proto_utils.proto_to_json(at_least(each.config))}
            super().Do(input_dict, {**output_dict, keys.EVALUATION_KEY: [evaluation_]}, {**exec_properties, **config})


class Executor(StockExecutor):
    """Computes the same from columns: in large batches, for all slices and both models in one pass.

    A metric without a columnar form is computed by TFMA, row by row. TFX's executor evaluates models and configs that
    the columnar code does not support; the log names the reason.
    """

    def _evaluate(
        self, labels: Sequence[OneLabel], input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        models = _models(input_dict)
        evaluations = [_evaluation(each, models) for each in labels]
        reasons = [_needs_stock(examples, what, each.plan) for what, each in zip(evaluations, labels, strict=True)]
        reason = next((each for each in reasons if each), None)
        if reason and any(each.plan.group or each.plan.task == "retrieval" for each in labels):
            raise refused(f"one by TFX's own executor, because of {reason}")
        if reason:
            logging.info("TFX's own executor evaluates the model, because of %s", reason)
            super()._evaluate(labels, input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        stored = example_artifacts.examples_of(examples, _SPLIT)
        with self._make_beam_pipeline() as pipeline:
            # Workers are forked by now: metrics of tf_keras start TensorFlow's runtime.
            others = {name for what in evaluations for name in Metrics(what.config()).names_of_others}
            if others:
                logging.info("TFMA computes these metrics itself, row by row: %s", ", ".join(sorted(others)))
            files = pipeline | "Files" >> beam.Create(stored.paths, reshuffle=False)
            found = files | Evaluate(stored, evaluations)
            for each, what, (results, *worst) in zip(labels, evaluations, found, strict=True):
                fileio.makedirs(each.folder)
                _ = results | f"Write{each.plan.label_name}" >> beam.Map(_write, each.folder, what)
                for of_label in worst:
                    _ = of_label | "WriteMistakes" >> beam.Map(_write_mistakes, each.folder)


def _write(results: Mapping[evaluation.SliceKey, evaluation.Results], folder: str, what: Evaluation) -> None:
    evaluation.write(folder, results, what.config(), what.models)


def _write_mistakes(found: Sequence[Mistake], folder: str) -> None:
    with fileio.open(f"{folder}/{mistakes.FILE}", "w") as file:
        file.write(mistakes.to_json(worst_mistakes.bounded(found)))


def _of_labels(plan: EvaluationPlan, folder: str, exec_properties: Mapping[str, Any]) -> list[OneLabel]:
    """Return what is evaluated; TFMA's config of the first label is a parameter, the others are made like it."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(exec_properties[keys.EVAL_CONFIG_KEY], config)
    first, *others = plan.of_labels()
    (spec,) = config.model_specs
    preprocessing = tuple(spec.preprocessing_function_names)
    configs = [config] + [
        eval_config(each, each.renamed(spec.label_key, first), preprocessing, each.renamed(spec.prediction_key, first))
        for each in others
    ]
    return list(map(OneLabel, (first, *others), plan.folders(folder), configs))


def _models(inputs: Inputs) -> dict[str, str]:
    """Return the folder of each model, by TFMA's name of it."""
    compared = bool(inputs.get(keys.BASELINE_MODEL_KEY))
    of_kinds = {tfma.CANDIDATE_KEY: keys.MODEL_KEY, tfma.BASELINE_KEY: keys.BASELINE_MODEL_KEY}
    if not compared:
        return {"": _saved_model(inputs[keys.MODEL_KEY])}
    return {name: _saved_model(inputs[kind]) for name, kind in of_kinds.items()}


def _completed(config: tfma.EvalConfig, *, compared: bool) -> tfma.EvalConfig:
    """Return TFMA's config with a model spec for the baseline, if there is one, as TFX's executor completes it."""
    return tfma.utils.update_eval_config_with_defaults(config, has_baseline=compared, rubber_stamp=True)


def _evaluation(label: OneLabel, models: Mapping[str, str]) -> Evaluation:
    plan, config = label.plan, _completed(label.config, compared=len(models) > 1)
    return Evaluation(config.SerializeToString(), models, plan.label_columns, worst_mistakes.search(plan), plan.group)


def _needs_stock(examples: Artifact, what: Evaluation, plan: EvaluationPlan) -> str | None:
    """Return what only TFX's executor supports; None if there is nothing."""
    if example_artifacts.format_of(examples) is None:
        return "the examples' format"
    config = what.config()
    reasons = (saved_model.unsupported(what.models[spec.name], spec, plan.task) for spec in config.model_specs)
    return evaluation.unsupported(config) or next((each for each in reasons if each), None)


def _judged(label: OneLabel, inputs: Inputs) -> Verdict:
    """Judges a model by what was measured for a label, and writes the data of its charts."""
    plan, folder = label.plan, label.folder
    leakage = _leakage(plan, inputs)
    if leakage.unknown:
        logging.info("leakage is not judged: %s", leakage.unknown)
    important = _importance(label, inputs)
    if important.unknown:
        logging.info("the importance of columns is not measured: %s", important.unknown)
    compared = bool(inputs.get(keys.BASELINE_MODEL_KEY))
    result = judge(
        plan.evaluation,
        _measured(folder, artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY]), compared),
        plan.force_bless,
        leakage,
        uncalibrated=plan.uncalibrated,
        importance=important,
        task=plan.task,
    )
    with fileio.open(f"{folder}/{importance.FILE}", "w") as file:
        file.write(important.to_json())
    with fileio.open(f"{folder}/{plot_data.FILE}", "w") as file:
        file.write(tfma_results.plots(folder, plan.task).to_json())
    return result


def _leakage(plan: EvaluationPlan, inputs: Inputs) -> Leakage:
    """Look for columns of the features that alone predict the label."""
    if plan.task == "retrieval":
        return Leakage(unknown="a retrieval does not predict the label")
    examples = artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY])
    if plan.feature_columns is None:
        return Leakage(unknown="the columns of features of own code are not known")
    if example_artifacts.format_of(examples) is None:
        return Leakage(unknown="it cannot be looked for, because of the examples' format")
    stored = example_artifacts.examples_of(examples, _SPLIT)
    return leakage_sample.measure(stored, plan.feature_columns, plan.label, plan.task)


def _importance(label: OneLabel, inputs: Inputs) -> Importance:
    """Measures the importance of the columns of the features."""
    plan = label.plan
    rows = permutation.rows_of(plan)
    examples = artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY])
    what = _evaluation(label, {"": _saved_model(inputs[keys.MODEL_KEY])})
    (spec,), folder = what.config().model_specs, what.models[""]
    if plan.feature_columns is None:
        return Importance(unknown="the columns of features of own code are not known")
    if len(plan.feature_columns) < 2 and not plan.evaluation.max_importance:
        return Importance(unknown="the model has one column")
    if not rows:
        return Importance(unknown="the table has many columns, or evaluation.importance_rows is 0")
    reason = _needs_stock(examples, what, plan)
    if reason:
        return Importance(unknown=f"it cannot be, because of {reason}")
    model = saved_model.Model(folder, spec, plan.label_columns)
    stored = example_artifacts.examples_of(examples, _SPLIT)
    return permutation.measure(stored, model, what.config().slicing_specs, plan, rows)


def _saved_model(models: list[Artifact]) -> str:
    """Return the folder of the SavedModel of an artifact."""
    model = artifact_utils.get_single_instance(models)
    return str(path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)))


def _measured(folder: str, examples: Artifact, compared: bool) -> Measured:
    """Read what TFMA has measured.

    TFMA reads an evaluation without files as one without metrics, which no bound would accept.

    Args:
      folder: of the ModelEvaluation artifact.
      examples: that were evaluated.
      compared: whether there was a baseline.

    Raises:
      MachineError: TFMA has not written the metrics of the rows, so there is nothing to base a verdict on.
    """
    found = tfma_results.read(folder) if fileio.glob(f"{folder}/{tfma.METRICS_KEY}*") else []
    whole = [each for each in found if not each.slice]
    # A split without rows has no metrics.
    if not whole and (example_artifacts.format_of(examples) is None or _has_rows(examples)):
        raise MachineError(
            f"Evaluator: expected TFMA's metrics of the split {_SPLIT} in {folder}, received none",
            "see its log; then --resume the run",
        )
    [overall] = whole or [SliceMetrics({}, 0, {}, {})]
    return Measured(overall, tuple(each for each in found if each.slice), compared)


def _has_rows(examples: Artifact) -> bool:
    return any(batch.num_rows for batch in example_artifacts.examples_of(examples, _SPLIT).batches())


def _validate(folder: str, result: Verdict) -> None:
    """Write the verdict as TFMA's validation result."""
    evaluation.write_validation(
        folder,
        result.blessed,
        [evaluation.Failure(check.slice, check.metric, check.value, str(check)) for check in result.failed],
    )


def _bless(result: Verdict, inputs: dict[str, list[Artifact]], blessing: Artifact) -> None:
    """Set the properties and the file of a blessing as TFX's Evaluator does, for other readers of blessings."""
    model = artifact_utils.get_single_instance(inputs[keys.MODEL_KEY])
    blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    for baseline in inputs.get(keys.BASELINE_MODEL_KEY) or ():
        blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline.uri)
        blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline.id)
    if result.forced is not None:
        blessing.set_string_custom_property(FORCED, result.forced)
    mark, value = (
        (constants.BLESSED_FILE_NAME, constants.BLESSED_VALUE)
        if result.blessed
        else (constants.NOT_BLESSED_FILE_NAME, constants.NOT_BLESSED_VALUE)
    )
    io_utils.write_string_file(f"{blessing.uri}/{mark}", "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
