"""SchemaGen for a curated schema, which is passed as a parameter for orchestrators without access to local files."""

from __future__ import annotations

from typing import Any, ClassVar

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.schema_gen.executor import DEFAULT_FILE_NAME
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import Channel, artifact_utils, component_spec, standard_artifacts
from tfx.utils import io_utils


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """An executor that writes the schema in its parameter to a file."""

    def Do(self, input_dict: dict[str, Any], output_dict: dict[str, Any], exec_properties: dict[str, Any]) -> None:  # noqa: N802
        """Write the schema to the file that TFX's SchemaGen writes.

        Args:
          input_dict: Empty.
          output_dict: `schema`, one artifact.
          exec_properties: `text`, the schema as a text proto.
        """
        schema = text_format.Parse(exec_properties["text"], schema_pb2.Schema())
        folder = artifact_utils.get_single_uri(output_dict["schema"])
        io_utils.write_pbtxt_file(f"{folder}/{DEFAULT_FILE_NAME}", schema)


class _Spec(component_spec.ComponentSpec):  # type: ignore[misc]
    """Outputs and parameters of the component."""

    PARAMETERS: ClassVar = {"text": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar[dict[str, Any]] = {}
    OUTPUTS: ClassVar = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class CuratedSchema(base_component.BaseComponent):  # type: ignore[misc]
    """The node `SchemaGen` for a curated schema. The text is a parameter, and therefore part of the cache key.

    Args:
      text: The schema as a text proto.
    """

    SPEC_CLASS = _Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, text: str) -> None:
        super().__init__(spec=_Spec(text=text, schema=Channel(type=standard_artifacts.Schema)))
