"""Predictor's driver: resolves the files of a run, before its output is looked up in the cache."""

from __future__ import annotations

from typing import Any

from tfx.components.example_gen import driver as example_gen_driver
from tfx.orchestration import data_types_utils
from tfx.proto.orchestration import driver_output_pb2

from components.ingest.driver import Driver as IngestDriver


class Driver(IngestDriver):
    """ExampleGen's driver, whose output has another name."""

    def run(self, execution_info: Any) -> driver_output_pb2.DriverOutput:
        """Resolves files, span and fingerprint.

        Args:
          execution_info: TFX's, with `input_base`, `input_config` and optionally `range_config`.

        Raises:
          InputError: the patterns match no files.
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
