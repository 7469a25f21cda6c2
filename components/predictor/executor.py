"""Predictor's executor: batch prediction with the model that the run has pushed."""

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
    """Writes the predictions; see `batch_prediction` for the files, of which `_manifest.json` describes the others."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Predicts the rows of the files that the driver has resolved.

        Args:
          input_dict: `pushed_model`; if it was not pushed, nothing is predicted.
          output_dict: `predictions`; gets the properties `rows`, `predicted`, `quarantined` and `model_version`.
          exec_properties: `input_base` and `input_config`, as ExampleGen's; `plan`, a PredictionPlan as JSON.

        Raises:
          InputError: the files cannot be read, lack a column, or have too many bad rows.
          MachineError: Beam's workers write to another disk.
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
        written = batch_prediction.predict(
            list(dict.fromkeys(files)),
            plan,
            model_interface.read(pushed.uri),
            {"version": int(version), "folder": pushed.get_string_custom_property("pushed_destination")},
            predictions.uri,
            self._make_beam_pipeline,
        )
        for name in ("rows", "predicted", "quarantined"):
            predictions.set_int_custom_property(name, getattr(written, name))
        predictions.set_string_custom_property("model_version", version)
        predictions.set_string_custom_property("columns", json.dumps(dict(written.columns)))
        logging.info("predicted %d of %d rows", written.predicted, written.rows)
