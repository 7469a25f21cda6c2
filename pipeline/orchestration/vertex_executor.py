"""Run a node that Vertex AI Pipelines has called: read the ExecutorInput, and write the ExecutorOutput.

Both messages are defined by kfp's pipeline spec. TFX's functions convert artifacts and parameters.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging as absl_logging
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.components.evaluator.executor import Executor as StockEvaluator
from tfx.components.example_gen import driver as example_gen_driver
from tfx.components.example_gen import utils as example_gen
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.io import fileio
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as entrypoint
from tfx.orchestration.portable import outputs_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.types.value_artifact import ValueArtifact
from tfx.utils import import_utils

_DRIVER_OUTPUTS = (
    example_gen.SPAN_PROPERTY_NAME,
    example_gen.VERSION_PROPERTY_NAME,
    example_gen.FINGERPRINT_PROPERTY_NAME,
    standard_component_specs.INPUT_CONFIG_KEY,
)
"""Parameters that the driver of ExampleGen determines."""


@dataclass(frozen=True)
class Call:
    """A call of a node by the service.

    Attributes:
      request: The ExecutorInput message.
      types: A ComponentInputsSpec message with the types of the parameters.
      pipeline: Name of the pipeline.
    """

    request: Any
    types: Any
    pipeline: str

    @property
    def folder(self) -> str:
        """Folder of the task, chosen by the service: <root>/<project>/<run>/<node>_<number>."""
        return str(self.request.outputs.output_file).rpartition("/")[0]

    @property
    def node(self) -> str:
        """ID of the node."""
        return self.folder.rpartition("/")[2].rpartition("_")[0]

    @property
    def run(self) -> str:
        """ID of the PipelineJob."""
        return self.folder.rpartition("/")[0].rpartition("/")[2]


def read(request: str, types: str, pipeline: str) -> Call:
    """Parse the arguments of the command line into a call.

    Args:
      request: The ExecutorInput as JSON.
      types: The ComponentInputsSpec as JSON.
      pipeline: Name of the pipeline.
    """
    absl_logging.set_verbosity(absl_logging.INFO)
    return Call(
        json_format.Parse(request, pipeline_spec_pb2.ExecutorInput(), ignore_unknown_fields=True),
        json_format.Parse(types, pipeline_spec_pb2.ComponentInputsSpec(), ignore_unknown_fields=True),
        pipeline,
    )


def drive(call: Call, driver_class: str) -> None:
    """Determine the input of ExampleGen before the service reads its cache, and write it as the ExecutorOutput.

    Args:
      call: A call of ExampleGen.
      driver_class: Import path of ExampleGen's driver.
    """
    names: dict[int, str] = {}
    [examples] = entrypoint.parse_raw_artifact_dict(call.request.outputs.artifacts, names)["examples"]
    driver = import_utils.import_class_by_path(driver_class)(None)
    resolved = driver.resolve_exec_properties(_parse_parameters(call), None, None)
    example_gen_driver.update_output_artifact(resolved, examples.mlmd_artifact)
    output = pipeline_spec_pb2.ExecutorOutput()
    for name in _DRIVER_OUTPUTS:
        value = resolved.get(name)
        if isinstance(value, str):
            output.parameter_values[name].string_value = value
        elif value is not None:
            output.parameter_values[name].number_value = value
    output.artifacts["examples"].artifacts.append(entrypoint.to_runtime_artifact(examples, names))
    _write_output(call, output)


def execute(call: Call, executor_class: str, beam_args: Sequence[str]) -> None:
    """Run the executor, and write its outputs as the ExecutorOutput.

    Args:
      call: A call of the node.
      executor_class: Import path of the node's executor.
      beam_args: Beam's options.
    """
    _apply_driver_output(call)
    names: dict[int, str] = {}
    inputs = entrypoint.parse_raw_artifact_dict(call.request.inputs.artifacts, names)
    # TFX's launcher reads value artifacts as well. TFX's entry point for the service does not, so that a component
    # with a number as input fails.
    for artifact in itertools.chain.from_iterable(inputs.values()):
        if isinstance(artifact, ValueArtifact):
            artifact.read()
    outputs = entrypoint.parse_raw_artifact_dict(call.request.outputs.artifacts, names)
    executor = import_utils.import_class_by_path(executor_class)
    logging.info("%s of run %s: %s", call.node, call.run, executor_class)
    # All attempts at this run share the folder, and other runs do not use it.
    state_folder = f"{call.folder.rpartition('/')[0]}/.kept/{call.node}"
    context_fields = {
        "unique_id": call.folder.rpartition("/")[2],
        "tmp_dir": f"{call.folder}/.temp",
        "stateful_working_dir": state_folder,
        "pipeline_node": pipeline_pb2.PipelineNode(node_info=pipeline_pb2.NodeInfo(id=call.node)),
        "pipeline_info": pipeline_pb2.PipelineInfo(id=call.pipeline),
        "pipeline_run_id": call.run,
    }
    if issubclass(executor, BaseBeamExecutor):
        context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args), **context_fields)
    else:
        context = BaseExecutor.Context(extra_flags=list(beam_args), **context_fields)
    executor(context).Do(inputs, outputs, _parse_parameters(call))
    outputs_utils.tag_output_artifacts_with_version(outputs)
    if issubclass(executor, StockEvaluator):
        # The service finds the blessed model by its resource name instead of TFX's ID.
        blessing = artifact_utils.get_single_instance(outputs[standard_component_specs.BLESSING_KEY])
        entrypoint.refactor_model_blessing(blessing, names)
    output = pipeline_spec_pb2.ExecutorOutput()
    for key, artifacts in entrypoint.translate_executor_output(outputs, names).items():
        output.artifacts[key].CopyFrom(artifacts)
    _write_output(call, output)
    for leftover in (state_folder, f"{call.folder}/.temp"):
        if fileio.exists(leftover):
            fileio.rmtree(leftover)


def _apply_driver_output(call: Call) -> None:
    """Override the input by the driver's output, because the service passes on at most the artifacts."""
    if not fileio.exists(call.request.outputs.output_file):
        return
    with fileio.open(call.request.outputs.output_file, "rb") as file:
        driver_output = json_format.Parse(file.read(), pipeline_spec_pb2.ExecutorOutput(), ignore_unknown_fields=True)
    for name, value in driver_output.parameter_values.items():
        call.request.inputs.parameter_values[name].CopyFrom(value)
    for key, artifacts in driver_output.artifacts.items():
        for artifact, resolved in zip(call.request.outputs.artifacts[key].artifacts, artifacts.artifacts, strict=True):
            artifact.metadata.MergeFrom(resolved.metadata)


def _parse_parameters(call: Call) -> dict[str, Any]:
    return dict(
        entrypoint.parse_execution_properties(
            call.request.inputs.parameter_values, call.request.inputs.parameters, call.types
        )
    )


def _write_output(call: Call, output: Any) -> None:
    fileio.makedirs(call.folder)
    with fileio.open(call.request.outputs.output_file, "wb") as file:
        file.write(json_format.MessageToJson(output, sort_keys=True).encode())
