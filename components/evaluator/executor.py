"""The Evaluator's executor: TFX's executor computes the metrics, then the gate decides about the model."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow_model_analysis as tfma
from tfx.components.evaluator import constants
from tfx.components.evaluator import executor as stock
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, path_utils

from components.errors import MachineError
from components.evaluator import plot_data, predictions, tfma_results, verdict
from components.evaluator.baseline import usable_baseline
from components.evaluator.gate import judge
from components.evaluator.plan import EvaluationPlan
from components.evaluator.verdict import SliceMetrics, Verdict

FORCED = "forced"
"""Property of the blessing of a model that was blessed although checks failed: the user's reason."""


class Executor(stock.Executor):  # type: ignore[misc]
    """TFX's Evaluator without thresholds, so that it blesses no model, and the gate's verdict on its metrics.

    All bounds are checked by the gate: TFMA's thresholds support neither slices with too few rows, nor gaps between
    groups, nor a forced blessing.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluates the model and writes the verdict.

        Args:
          input_dict: `examples`, `model`, and `baseline_model` if there is one.
          output_dict: `evaluation` gets TFMA's files, `verdict.json`, `plots.json` and, where the model's
            signature allows it, `predictions.tfrecord`; `blessing` gets the properties that TFX's Evaluator sets.
          exec_properties: those of TFX's Evaluator, and `plan`, an EvaluationPlan as JSON.

        Raises:
          Exception: the evaluation could not finish; there is no verdict then, and nothing is cached.
        """
        model = artifact_utils.get_single_instance(input_dict[keys.MODEL_KEY])
        input_dict = usable_baseline(input_dict)
        super().Do(input_dict, output_dict, exec_properties)
        plan = EvaluationPlan.model_validate_json(exec_properties["plan"])
        folder = artifact_utils.get_single_uri(output_dict[keys.EVALUATION_KEY])
        if plan.predictions:
            saved = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
            examples = artifact_utils.get_split_uri(input_dict[keys.EXAMPLES_KEY], "eval")
            predictions.write(saved, examples, plan.predictions, folder)
        compared = bool(input_dict.get(keys.BASELINE_MODEL_KEY))
        result = judge(plan.evaluation, _measurements(folder), compared, plan.force_bless)
        for check in result.checks:
            logging.info("%s: %s", "pass" if check.passed else "fail", check)
        with fileio.open(f"{folder}/{verdict.FILE}", "w") as file:
            file.write(result.to_json())
        with fileio.open(f"{folder}/{plot_data.FILE}", "w") as file:
            file.write(tfma_results.plots(folder, plan.task).to_json())
        _bless(result, input_dict, artifact_utils.get_single_instance(output_dict[keys.BLESSING_KEY]))


def _measurements(folder: str) -> list[SliceMetrics]:
    """What TFMA has measured; it reads an evaluation without files as one without metrics, which no bound would accept.

    Args:
      folder: of the ModelEvaluation artifact.

    Raises:
      MachineError: TFMA has written no metrics, so there is nothing to base a verdict on.
    """
    if not fileio.glob(f"{folder}/{tfma.METRICS_KEY}*"):
        raise MachineError(
            f"Evaluator: expected TFMA's metrics in {folder}, received no file",
            "see its log; then --resume the run",
        )
    return tfma_results.read(folder)


def _bless(result: Verdict, inputs: dict[str, list[Artifact]], blessing: Artifact) -> None:
    """Sets the properties and the file of a blessing as TFX's Evaluator does, for other readers of blessings."""
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
