"""The node Predictor: apply the pushed model to the rows of further files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types.standard_component_specs import INPUT_BASE_KEY, INPUT_CONFIG_KEY, RANGE_CONFIG_KEY

from components.base.files import is_remote
from components.ingest.component import input_of
from components.ingest.config import SpansConfig
from components.ingest.driver import range_config
from components.ingest.input_files import FilePatterns
from components.predictor.driver import Driver
from components.predictor.executor import Executor
from components.predictor.plan import PredictionPlan


class PredictorSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """Inputs, outputs and parameters of the component; the files are described as in TFX's FileBasedExampleGen."""

    PARAMETERS: ClassVar = {
        INPUT_BASE_KEY: component_spec.ExecutionParameter(type=str),
        INPUT_CONFIG_KEY: component_spec.ExecutionParameter(type=example_gen_pb2.Input),
        RANGE_CONFIG_KEY: component_spec.ExecutionParameter(type=range_config_pb2.RangeConfig, optional=True),
        "plan": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {"pushed_model": component_spec.ChannelParameter(type=standard_artifacts.PushedModel)}
    OUTPUTS: ClassVar = {"predictions": component_spec.ChannelParameter(type=standard_artifacts.InferenceResult)}


class Predictor(base_beam_component.BaseBeamComponent):  # type: ignore[misc]
    """Predicts rows with the model that the run pushed; its output is `predictions`.

    If the run did not push a model, the output is empty.
    """

    SPEC_CLASS = PredictorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self, plan: PredictionPlan, source: FilePatterns, spans: SpansConfig, *, pushed_model: BaseChannel
    ) -> None:
        """Create the component.

        Args:
          plan: How rows are read, and what is written.
          source: Files with the rows to predict.
          spans: Spans to read. Ignored if the file pattern does not contain spans.
          pushed_model: The Pusher's output.
        """
        spec = PredictorSpec(
            input_base=source.base if is_remote(source.base) else str(Path(source.base).absolute()),
            input_config=input_of(source.patterns),
            range_config=range_config(spans) if spans.model_fields_set else None,
            plan=plan.model_dump_json(),
            pushed_model=pushed_model,
            predictions=Channel(type=standard_artifacts.InferenceResult),
        )
        super().__init__(spec=spec)
