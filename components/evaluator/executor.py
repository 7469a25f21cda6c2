"""The Evaluator's executors: compute the metrics from columns or by TFX's executor, then let the gate decide."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tfx.components.evaluator import constants
from tfx.components.evaluator import executor as stock
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, path_utils, proto_utils

from components.base.config_section import Task
from components.base.errors import MachineError
from components.compat.tfma import evaluation as tfma_evaluation
from components.data import example_artifacts
from components.data.decisions import read as read_decisions
from components.evaluator import (
    dependence,
    importance,
    leakage_sample,
    linear_model,
    mistakes,
    partial_dependence,
    permutation,
    plot_data,
    saved_model,
    tfma_results,
    verdict,
    worst_mistakes,
)
from components.evaluator.baseline import drop_unusable_baseline
from components.evaluator.columnar import Evaluate, Evaluation, Metrics
from components.evaluator.dependence import Dependence
from components.evaluator.eval_config import at_least, eval_config
from components.evaluator.gate import judge
from components.evaluator.importance import Importance
from components.evaluator.linear_model import LinearModel
from components.evaluator.mistakes import Mistake
from components.evaluator.plan import PSEUDO_LABEL, EvaluationPlan
from components.evaluator.ranking_metrics import make_grouping_error
from components.evaluator.verdict import Measured, SliceMetrics, Verdict
from components.features.expression import Label
from components.features.leakage import Leakage
from components.results.decision import Decision

FORCED = "forced"
"""Property of the blessing with the user's reason to bless the model although checks failed."""
_SPLIT, _TRAIN = "eval", "train"

Inputs = dict[str, list[Artifact]]


class LabelEvaluation(NamedTuple):
    """The evaluation of one label.

    Attributes:
      plan: Plan of the evaluation of all labels.
      label: The label.
      folder: Folder of its files.
      decisions: TFMA's name of a model, "" for the only model → its decision on the label; None if the model returns
        probabilities only.
    """

    plan: EvaluationPlan
    label: Label
    folder: str
    decisions: Mapping[str, Decision | None]

    @property
    def config(self) -> tfma.EvalConfig:
        """TFMA's config."""
        return eval_config(self.plan, self.label, self.thresholds)

    @property
    def thresholds(self) -> dict[str, float]:
        """TFMA's name of a model → the smallest probability of its decision 1."""
        return {name: chosen.threshold if chosen else plot_data.AT for name, chosen in self.decisions.items()}

    @property
    def candidate(self) -> Decision | None:
        """The decision of the model that is judged."""
        return next(chosen for name, chosen in self.decisions.items() if name != tfma.BASELINE_KEY)


Evaluations = Sequence[LabelEvaluation]


class StockExecutor(stock.Executor):  # type: ignore[misc]
    """TFX's Evaluator without thresholds, followed by the gate, which decides whether to bless the model.

    The gate checks all bounds, because TFMA's thresholds support neither slices with too few rows, nor gaps between
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
          input_dict: `examples`, `model`, and `baseline_model` if there is a baseline.
          output_dict: `evaluation` receives TFMA's files, with the verdict as their validation result, `verdict.json`,
            `plots.json`, `importance.json`, `dependence.json`, and for images `mistakes.json`. With several labels
            these files are about the first label, and a subfolder per further label holds the same files. `blessing`
            receives the properties that TFX's Evaluator sets.
          exec_properties: Properties of TFX's Evaluator, and `plan`, an EvaluationPlan as JSON.

        Raises:
          Exception: The evaluation did not finish. No verdict is written, and nothing is cached.
        """
        input_dict = drop_unusable_baseline(input_dict)
        plan = EvaluationPlan.model_validate_json(exec_properties["plan"])
        folder = artifact_utils.get_single_uri(output_dict[keys.EVALUATION_KEY])
        decisions = {name: read_decisions(model) for name, model in _models(input_dict).items()}
        evaluations = [
            LabelEvaluation(
                plan,
                label,
                plan.find_folder(label, folder),
                {name: of_labels.get(label.name) for name, of_labels in decisions.items()},
            )
            for label in plan.labels
        ]
        self._evaluate(evaluations, input_dict, output_dict, exec_properties)
        verdicts = {evaluation.label.name: _judge(evaluation, input_dict) for evaluation in evaluations}
        result = verdict.join_verdicts(verdicts) if len(verdicts) > 1 else verdicts[""]
        for check in result.checks:
            logging.info("%s: %s", "pass" if check.passed else "fail", check)
        for warning in result.warnings:
            logging.warning("%s", warning)
        with fileio.open(f"{folder}/{verdict.FILE}", "w") as file:
            file.write(result.to_json())
        # Readers of the artifact's own folder, which the first label uses, expect the verdict on all labels.
        for evaluation in evaluations:
            _validate(evaluation.folder, result if evaluation.folder == folder else verdicts[evaluation.label.name])
        _bless(result, input_dict, artifact_utils.get_single_instance(output_dict[keys.BLESSING_KEY]))

    def _evaluate(
        self, evaluations: Evaluations, input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        """Write TFMA's files."""
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        if example_artifacts.format_of(examples) == "parquet":
            # TFX's executor reads serialized rows, which Parquet files do not contain.
            records = example_artifacts.write_tfrecords(examples, f"{self._get_tmp_dir()}/examples", [_SPLIT])
            input_dict = {**input_dict, keys.EXAMPLES_KEY: [records]}
        for evaluation in evaluations:
            artifact = copy.deepcopy(artifact_utils.get_single_instance(output_dict[keys.EVALUATION_KEY]))
            artifact.uri = evaluation.folder
            config = {keys.EVAL_CONFIG_KEY: proto_utils.proto_to_json(at_least(evaluation.config))}
            super().Do(input_dict, {**output_dict, keys.EVALUATION_KEY: [artifact]}, {**exec_properties, **config})


class Executor(StockExecutor):
    """Compute the same from columns: in large batches, for all slices and both models in one pass.

    TFMA computes a metric row by row if it does not have a columnar form. TFX's executor evaluates models and configs
    that the columnar code does not support; the log names the reason.
    """

    def _evaluate(
        self, evaluations: Evaluations, input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        models = _models(input_dict)
        specifications = [_specify(evaluation, models) for evaluation in evaluations]
        task = evaluations[0].plan.task
        reasons = (_needs_stock(examples, specification, task) for specification in specifications)
        reason = next(filter(None, reasons), None)
        needs_columns = evaluations[0].plan.forecasts or any(specification.group for specification in specifications)
        if reason and (task in ("anomaly", "multilabel", "survival", "retrieval") or needs_columns):
            raise make_grouping_error(f"TFX's own executor, because of {reason}")
        if reason:
            logging.info("TFX's own executor evaluates the model, because of %s", reason)
            super()._evaluate(evaluations, input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        stored = example_artifacts.examples_of(examples, _SPLIT)
        with self._make_beam_pipeline() as pipeline:
            # Create the metrics only after the workers were forked: metrics of tf_keras start TensorFlow's runtime.
            names = {
                name for specification in specifications for name in Metrics(specification.config()).row_by_row_names
            }
            if names:
                logging.info("TFMA computes these metrics itself, row by row: %s", ", ".join(sorted(names)))
            files = pipeline | "Files" >> beam.Create(stored.paths, reshuffle=False)
            outputs = files | Evaluate(stored, specifications)
            for evaluation, specification, (results, *worst) in zip(evaluations, specifications, outputs, strict=True):
                label, folder = evaluation.label, evaluation.folder
                fileio.makedirs(folder)
                _ = results | f"Write{label.name}" >> beam.Map(_write, folder, specification)
                for label_mistakes in worst:
                    _ = label_mistakes | "WriteMistakes" >> beam.Map(_write_mistakes, folder)


def _write(
    results: Mapping[tfma_evaluation.SliceKey, tfma_evaluation.Results], folder: str, specification: Evaluation
) -> None:
    tfma_evaluation.write(folder, results, specification.config(), specification.models)


def _write_mistakes(worst: Sequence[Mistake], folder: str) -> None:
    with fileio.open(f"{folder}/{mistakes.FILE}", "w") as file:
        file.write(mistakes.to_json(worst_mistakes.limit_thumbnails(worst)))


def _models(inputs: Inputs) -> dict[str, str]:
    """Return the folders of the models by TFMA's names of the models; "" is the only model."""
    if not inputs.get(keys.BASELINE_MODEL_KEY):
        return {"": _find_saved_model(inputs[keys.MODEL_KEY])}
    return {
        tfma.CANDIDATE_KEY: _find_saved_model(inputs[keys.MODEL_KEY]),
        tfma.BASELINE_KEY: _find_saved_model(inputs[keys.BASELINE_MODEL_KEY]),
    }


def _specify(evaluation: LabelEvaluation, models: Mapping[str, str]) -> Evaluation:
    # With a baseline, TFX's executor adds its model spec to the config in the same way.
    config = tfma.utils.update_eval_config_with_defaults(
        evaluation.config, has_baseline=len(models) > 1, rubber_stamp=True
    )
    plan, label = evaluation.plan, evaluation.label
    candidate = evaluation.candidate
    mistakes_search = worst_mistakes.search(plan, label, candidate.threshold if candidate else plot_data.AT)
    return Evaluation(
        config.SerializeToString(),
        models,
        plan.label_columns,
        mistakes_search,
        plan.find_group(label),
        (plan.feature_columns or ()) if plan.label_key == PSEUDO_LABEL else (),
    )


def _needs_stock(examples: Artifact, specification: Evaluation, task: Task) -> str | None:
    """Return a feature that only TFX's executor supports; None if there is none."""
    if example_artifacts.format_of(examples) is None:
        return "the examples' format"
    config = specification.config()
    reasons = (saved_model.find_unsupported(specification.models[spec.name], spec, task) for spec in config.model_specs)
    return tfma_evaluation.find_unsupported(config) or next(filter(None, reasons), None)


def _judge(evaluation: LabelEvaluation, inputs: Inputs) -> Verdict:
    """Judge a model by the metrics of a label, and write the data of its charts."""
    plan, label, folder = evaluation.plan, evaluation.label, evaluation.folder
    leakage = _measure_leakage(plan, label, inputs)
    if leakage.unknown:
        logging.info("leakage is not judged: %s", leakage.unknown)
    column_importance, column_dependence = _interpret_model(evaluation, inputs)
    if column_importance.unknown:
        logging.info("the importance of columns is not measured: %s", column_importance.unknown)
    elif column_dependence.unknown:
        logging.info("the partial dependence is not measured: %s", column_dependence.unknown)
    linear = _measure_linear_model(plan, label, inputs)
    if linear.unknown:
        logging.info("no linear model is evaluated: %s", linear.unknown)
    has_baseline = bool(inputs.get(keys.BASELINE_MODEL_KEY))
    measured = _read_metrics(folder, artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY]), has_baseline)
    result = judge(
        plan.select_label(label),
        replace(measured, whole=replace(measured.whole, linear=linear.metrics)),
        plan.force_bless,
        leakage,
        uncalibrated=plan.uncalibrated,
        importance=column_importance,
        task=plan.task,
        decision=evaluation.candidate,
    )
    if evaluation.candidate:
        result = replace(result, decisions={label.name: evaluation.candidate})
    with fileio.open(f"{folder}/{importance.FILE}", "w") as file:
        file.write(column_importance.to_json())
    with fileio.open(f"{folder}/{dependence.FILE}", "w") as file:
        file.write(column_dependence.to_json())
    with fileio.open(f"{folder}/{plot_data.FILE}", "w") as file:
        thresholds = {name == tfma.BASELINE_KEY: at for name, at in evaluation.thresholds.items()}
        file.write(tfma_results.plots(folder, plan.task, thresholds).to_json())
    return result


def _measure_leakage(plan: EvaluationPlan, label: Label, inputs: Inputs) -> Leakage:
    """Look for feature columns that alone predict the label."""
    if plan.task == "retrieval":
        return Leakage(unknown="a retrieval does not predict the label")
    if plan.task == "anomaly":
        return Leakage(unknown="an anomaly model does not learn the label")
    if plan.task in ("multilabel", "survival"):
        return Leakage(unknown="it is only looked for in labels with one value per row")
    examples = artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY])
    if plan.feature_columns is None:
        return Leakage(unknown="the columns of features of own code are not known")
    if example_artifacts.format_of(examples) is None:
        return Leakage(unknown="it cannot be looked for, because of the examples' format")
    stored = example_artifacts.examples_of(examples, _SPLIT)
    columns = tuple(name for name in plan.feature_columns if name not in plan.past_columns)
    return leakage_sample.measure(stored, columns, label.text, plan.task)


def _measure_linear_model(plan: EvaluationPlan, label: Label, inputs: Inputs) -> LinearModel:
    """Evaluate a linear model of the same columns."""
    examples = artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY])
    rows = plan.evaluation.linear_model_rows
    if not rows:
        return LinearModel(unknown="evaluation.linear_model_rows is 0")
    if plan.task == "retrieval":
        return LinearModel(unknown="a retrieval does not predict the label")
    if plan.task == "anomaly":
        return LinearModel(unknown="an anomaly model does not learn the label")
    if plan.task in ("multilabel", "survival"):
        return LinearModel(unknown="it is only trained on labels with one value per row")
    if plan.feature_columns is None:
        return LinearModel(unknown="the columns of features of own code are not known")
    if example_artifacts.format_of(examples) is None or _TRAIN not in example_artifacts.splits_of(examples):
        return LinearModel(unknown=f"there are no examples to train on in the split {_TRAIN}")
    train, evaluated = (example_artifacts.examples_of(examples, split) for split in (_TRAIN, _SPLIT))
    return linear_model.measure(train, evaluated, plan, label, rows)


def _interpret_model(evaluation: LabelEvaluation, inputs: Inputs) -> tuple[Importance, Dependence]:
    """Measure the importance of columns, and how the prediction depends on the most important ones."""
    plan, label = evaluation.plan, evaluation.label
    rows = permutation.choose_row_count(plan, label)
    examples = artifact_utils.get_single_instance(inputs[keys.EXAMPLES_KEY])
    specification = _specify(evaluation, {"": _find_saved_model(inputs[keys.MODEL_KEY])})
    (spec,), folder = specification.config().model_specs, specification.models[""]
    if plan.task == "anomaly":
        return _not_interpreted("an anomaly model does not have a loss of labels")
    if plan.feature_columns is None:
        return _not_interpreted("the columns of features of own code are not known")
    if not rows:
        return _not_interpreted("the table has many columns, or evaluation.importance_rows is 0")
    reason = _needs_stock(examples, specification, plan.task)
    if reason:
        return _not_interpreted(f"it cannot be, because of {reason}")
    model = saved_model.Model(folder, spec, plan.label_columns)
    stored = example_artifacts.examples_of(examples, _SPLIT)
    measured = permutation.measure(stored, model, specification.config().slicing_specs, plan, rows)
    return measured, partial_dependence.measure(stored, model, plan, measured)


def _not_interpreted(reason: str) -> tuple[Importance, Dependence]:
    return Importance(unknown=reason), Dependence(unknown=reason)


def _find_saved_model(models: list[Artifact]) -> str:
    """Return the folder of the SavedModel of an artifact."""
    model = artifact_utils.get_single_instance(models)
    return str(path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)))


def _read_metrics(folder: str, examples: Artifact, has_baseline: bool) -> Measured:
    """Read the metrics from TFMA's files.

    TFMA reads a folder without files as an evaluation without metrics, which would fail every bound.

    Args:
      folder: Folder of the ModelEvaluation artifact.
      examples: Examples that were evaluated.
      has_baseline: Whether a baseline was evaluated.

    Raises:
      MachineError: The split has rows but TFMA did not write metrics, so that a verdict is impossible.
    """
    metrics = tfma_results.read(folder) if fileio.glob(f"{folder}/{tfma.METRICS_KEY}*") else []
    whole = [slice_metrics for slice_metrics in metrics if not slice_metrics.slice]
    # TFMA does not write metrics of a split without rows.
    if not whole and (example_artifacts.format_of(examples) is None or _has_rows(examples)):
        raise MachineError(
            f"Evaluator: expected TFMA's metrics of the split {_SPLIT} in {folder}, received none",
            "see its log; then --resume the run",
        )
    [overall] = whole or [SliceMetrics({}, 0, {}, {})]
    return Measured(overall, tuple(slice_metrics for slice_metrics in metrics if slice_metrics.slice), has_baseline)


def _has_rows(examples: Artifact) -> bool:
    return any(batch.num_rows for batch in example_artifacts.examples_of(examples, _SPLIT).batches())


def _validate(folder: str, result: Verdict) -> None:
    """Write the verdict as TFMA's validation result."""
    tfma_evaluation.write_validation(
        folder,
        result.blessed,
        [tfma_evaluation.Failure(check.slice, check.metric, check.value, str(check)) for check in result.failed],
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
