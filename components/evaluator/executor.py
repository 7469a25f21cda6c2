"""What the Evaluator runs: TFX's own executor measures, then our gate says whether the model is good enough."""

from __future__ import annotations

import logging
from typing import Any

from tfx.components.evaluator import constants
from tfx.components.evaluator import executor as stock
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, path_utils

from components.evaluator import plots, predictions, results, verdict
from components.evaluator.baseline import without_candidate
from components.evaluator.gate import judge
from components.evaluator.plan import EvaluationPlan
from components.evaluator.verdict import Verdict

FORCED = "forced"
"""Property of the blessing of a model that was blessed by force: the reason."""


class Executor(stock.Executor):  # type: ignore[misc]
    """TFX's Evaluator without thresholds, so that it blesses nothing, and a verdict of ours on what it has measured.

    There is one gate and one place where bounds are checked. TFMA's own knows neither slices with too few rows to be
    judged, nor gaps between groups, nor a model that is blessed by force.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """Evaluates and judges.

        Args:
          input_dict: `examples`, `model`, and `baseline_model` if there is one.
          output_dict: `evaluation` gets TFMA's files, `verdict.json`, `plots.json` and, where the model's
            signature allows it, `predictions.tfrecord`; `blessing` gets what TFX's Evaluator gives it.
          exec_properties: those of TFX's Evaluator, and `plan`, an EvaluationPlan as JSON.
        """
        model = artifact_utils.get_single_instance(input_dict[keys.MODEL_KEY])
        input_dict = without_candidate(input_dict)
        super().Do(input_dict, output_dict, exec_properties)
        plan = EvaluationPlan.model_validate_json(exec_properties["plan"])
        folder = artifact_utils.get_single_uri(output_dict[keys.EVALUATION_KEY])
        if plan.predictions:
            saved = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
            examples = artifact_utils.get_split_uri(input_dict[keys.EXAMPLES_KEY], "eval")
            predictions.write(saved, examples, plan.predictions, folder)
        compared = bool(input_dict.get(keys.BASELINE_MODEL_KEY))
        said = judge(plan.evaluation, results.read(folder), compared, plan.force_bless)
        for check in said.checks:
            logging.info("%s: %s", "pass" if check.passed else "fail", check)
        with fileio.open(f"{folder}/{verdict.FILE}", "w") as file:
            file.write(said.to_json())
        with fileio.open(f"{folder}/{plots.FILE}", "w") as file:
            file.write(results.plots(folder, plan.task).to_json())
        _bless(said, input_dict, artifact_utils.get_single_instance(output_dict[keys.BLESSING_KEY]))


def _bless(said: Verdict, inputs: dict[str, list[Any]], blessing: Any) -> None:
    """Marks a blessing as TFX's Evaluator does, so that whoever reads TFX's blessings reads ours."""
    model = artifact_utils.get_single_instance(inputs[keys.MODEL_KEY])
    blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    for baseline in inputs.get(keys.BASELINE_MODEL_KEY) or ():
        blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline.uri)
        blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline.id)
    if said.forced is not None:
        blessing.set_string_custom_property(FORCED, said.forced)
    mark, value = (
        (constants.BLESSED_FILE_NAME, constants.BLESSED_VALUE)
        if said.blessed
        else (constants.NOT_BLESSED_FILE_NAME, constants.NOT_BLESSED_VALUE)
    )
    io_utils.write_string_file(f"{blessing.uri}/{mark}", "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
