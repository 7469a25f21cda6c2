"""Predictor's driver, which resolves the input files.

It runs before TFX looks up the node's output in the cache, so that new files lead to new predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.components.example_gen import driver as example_gen_driver
from tfx.orchestration import data_types_utils
from tfx.proto.orchestration import driver_output_pb2

from components.ingest.config import IngestConfig
from components.ingest.driver import Driver as IngestDriver
from components.predictor.plan import PredictionPlan


class Driver(IngestDriver):
    """ExampleGen's driver for a node whose output is not called `examples`."""

    def run(self, execution_info: Any) -> driver_output_pb2.DriverOutput:
        """Resolve the files, the span and the fingerprint.

        Args:
          execution_info: TFX's ExecutionInfo, whose `exec_properties` contain `input_base`, `input_config` and
            optionally `range_config`.

        Returns:
          The parameters, and the output artifacts with the properties that ExampleGen sets on its own output.

        Raises:
          InputError: If the patterns do not match any file.
        """
        result = driver_output_pb2.DriverOutput()
        properties = self.resolve_exec_properties(execution_info.exec_properties, None, None)
        for name, value in properties.items():
            if value is not None:
                data_types_utils.set_metadata_value(result.exec_properties[name], value)
        for key, artifacts in execution_info.output_dict.items():
            for artifact in artifacts:
                added = result.output_artifacts[key].artifacts.add()
                added.CopyFrom(artifact.mlmd_artifact)
                example_gen_driver.update_output_artifact(properties, added)
        return result

    def _read_config(self, exec_properties: Mapping[str, Any]) -> IngestConfig | None:
        return PredictionPlan.model_validate_json(exec_properties["plan"]).ingest
