"""One call of a node by Vertex AI Pipelines: from its ExecutorInput to the executor, and to the ExecutorOutput.

The messages are those of kfp's pipeline spec; what in them is TFX's, TFX's own functions read and write.
"""

from __future__ import annotations

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
from tfx.utils import import_utils

_DRIVEN = (
    example_gen.SPAN_PROPERTY_NAME,
    example_gen.VERSION_PROPERTY_NAME,
    example_gen.FINGERPRINT_PROPERTY_NAME,
    standard_component_specs.INPUT_CONFIG_KEY,
)
"""What a driver settles, of the parameters."""


@dataclass(frozen=True)
class Call:
    """What the service has said.

    Attributes:
      told: the ExecutorInput.
      types: of the parameters, a ComponentInputsSpec.
      pipeline: the pipeline's name.
    """

    told: Any
    types: Any
    pipeline: str

    @property
    def folder(self) -> str:
        """The task's own folder, which the service chooses: <root>/<project>/<run>/<node>_<number>."""
        return str(self.told.outputs.output_file).rpartition("/")[0]

    @property
    def node(self) -> str:
        """The node's id."""
        return self.folder.rpartition("/")[2].rpartition("_")[0]

    @property
    def run(self) -> str:
        """The id of the PipelineJob."""
        return self.folder.rpartition("/")[0].rpartition("/")[2]


def read(told: str, types: str, pipeline: str) -> Call:
    """A call, from the command line.

    Args:
      told: the ExecutorInput as JSON.
      types: the ComponentInputsSpec as JSON.
      pipeline: the pipeline's name.
    """
    absl_logging.set_verbosity(absl_logging.INFO)
    return Call(
        json_format.Parse(told, pipeline_spec_pb2.ExecutorInput(), ignore_unknown_fields=True),
        json_format.Parse(types, pipeline_spec_pb2.ComponentInputsSpec(), ignore_unknown_fields=True),
        pipeline,
    )


def drive(call: Call, driver_class: str) -> None:
    """Settles what ExampleGen takes, before the service looks into its cache; it is told in the ExecutorOutput.

    Args:
      call: of ExampleGen.
      driver_class: import path of its driver.
    """
    names: dict[int, str] = {}
    [examples] = entrypoint.parse_raw_artifact_dict(call.told.outputs.artifacts, names)["examples"]
    driver = import_utils.import_class_by_path(driver_class)(None)
    settled = driver.resolve_exec_properties(_parameters(call), None, None)
    example_gen_driver.update_output_artifact(settled, examples.mlmd_artifact)
    output = pipeline_spec_pb2.ExecutorOutput()
    for name in _DRIVEN:
        value = settled.get(name)
        if isinstance(value, str):
            output.parameter_values[name].string_value = value
        elif value is not None:
            output.parameter_values[name].number_value = value
    output.artifacts["examples"].artifacts.append(entrypoint.to_runtime_artifact(examples, names))
    _write(call, output)


def execute(call: Call, executor_class: str, beam_args: Sequence[str]) -> None:
    """Runs the executor, and tells in the ExecutorOutput what it has made.

    Args:
      call: of the node.
      executor_class: import path of its executor.
      beam_args: Beam's options.
    """
    _take_what_was_driven(call)
    names: dict[int, str] = {}
    inputs = entrypoint.parse_raw_artifact_dict(call.told.inputs.artifacts, names)
    outputs = entrypoint.parse_raw_artifact_dict(call.told.outputs.artifacts, names)
    known = import_utils.import_class_by_path(executor_class)
    logging.info("%s of run %s: %s", call.node, call.run, executor_class)
    # The same for each attempt at this run, and for no other run.
    kept = f"{call.folder.rpartition('/')[0]}/.kept/{call.node}"
    surroundings = {
        "unique_id": call.folder.rpartition("/")[2],
        "tmp_dir": f"{call.folder}/.temp",
        "stateful_working_dir": kept,
        "pipeline_node": pipeline_pb2.PipelineNode(node_info=pipeline_pb2.NodeInfo(id=call.node)),
        "pipeline_info": pipeline_pb2.PipelineInfo(id=call.pipeline),
        "pipeline_run_id": call.run,
    }
    if issubclass(known, BaseBeamExecutor):
        context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args), **surroundings)
    else:
        context = BaseExecutor.Context(extra_flags=list(beam_args), **surroundings)
    known(context).Do(inputs, outputs, _parameters(call))
    outputs_utils.tag_output_artifacts_with_version(outputs)
    if issubclass(known, StockEvaluator):
        # The service looks the blessed model up by its name there, not by TFX's number.
        blessing = artifact_utils.get_single_instance(outputs[standard_component_specs.BLESSING_KEY])
        entrypoint.refactor_model_blessing(blessing, names)
    output = pipeline_spec_pb2.ExecutorOutput()
    for key, artifacts in entrypoint.translate_executor_output(outputs, names).items():
        output.artifacts[key].CopyFrom(artifacts)
    _write(call, output)
    for leftover in (kept, f"{call.folder}/.temp"):
        if fileio.exists(leftover):
            fileio.rmtree(leftover)


def _take_what_was_driven(call: Call) -> None:
    """Lays over the input what a driver has written; the service hands on the artifacts' part of it, or does not."""
    if not fileio.exists(call.told.outputs.output_file):
        return
    with fileio.open(call.told.outputs.output_file, "rb") as file:
        driven = json_format.Parse(file.read(), pipeline_spec_pb2.ExecutorOutput(), ignore_unknown_fields=True)
    for name, value in driven.parameter_values.items():
        call.told.inputs.parameter_values[name].CopyFrom(value)
    for key, found in driven.artifacts.items():
        for artifact, settled in zip(call.told.outputs.artifacts[key].artifacts, found.artifacts, strict=True):
            artifact.metadata.MergeFrom(settled.metadata)


def _parameters(call: Call) -> dict[str, Any]:
    return dict(
        entrypoint.parse_execution_properties(
            call.told.inputs.parameter_values, call.told.inputs.parameters, call.types
        )
    )


def _write(call: Call, output: Any) -> None:
    fileio.makedirs(call.folder)
    with fileio.open(call.told.outputs.output_file, "wb") as file:
        file.write(json_format.MessageToJson(output, sort_keys=True).encode())
