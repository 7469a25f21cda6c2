"""Predictor's executor: predict rows with the model that the run pushed."""

from __future__ import annotations

import json
import logging
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.ingest import input_files
from components.predictor import batch_prediction, model_interface
from components.predictor.plan import PredictionPlan


class Executor(base_beam_executor.BaseBeamExecutor):  # type: ignore[misc]
    """Writes the predictions, and a `_manifest.json` that describes them; see `batch_prediction`."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Predict the rows of the files that the driver resolved.

        Args:
          input_dict: `pushed_model`. If the model was not pushed, nothing is predicted.
          output_dict: `predictions`, whose properties `rows`, `predicted`, `quarantined`, `model_version` and `columns`
            are set.
          exec_properties: `input_base` and `input_config` as in ExampleGen, and `plan`, a PredictionPlan as JSON.

        Raises:
          InputError: If the files cannot be read, lack a column, or contain too many bad rows.
          MachineError: If Beam's workers write to another disk.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(input_dict["pushed_model"])
        predictions = artifact_utils.get_single_instance(output_dict["predictions"])
        fileio.makedirs(predictions.uri)
        if not pushed.get_int_custom_property("pushed"):
            logging.warning("no model was pushed; nothing is predicted")
            return
        plan = PredictionPlan.model_validate_json(exec_properties["plan"])
        input_config = proto_utils.json_to_proto(
            exec_properties[standard_component_specs.INPUT_CONFIG_KEY], example_gen_pb2.Input()
        )
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        files = [path for split in input_config.splits for path in input_files.listing(base, split.pattern)]
        version = pushed.get_string_custom_property("pushed_version")
        result = batch_prediction.predict(
            list(dict.fromkeys(files)),
            plan,
            model_interface.read(pushed.uri),
            {"version": int(version), "folder": pushed.get_string_custom_property("pushed_destination")},
            predictions.uri,
            self._make_beam_pipeline,
        )
        for name in ("rows", "predicted", "quarantined"):
            predictions.set_int_custom_property(name, getattr(result, name))
        predictions.set_string_custom_property("model_version", version)
        predictions.set_string_custom_property("columns", json.dumps(dict(result.columns)))
        logging.info("predicted %d of %d rows", result.predicted, result.rows)
