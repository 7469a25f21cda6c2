"""The TFX component DataGate, with statistics and anomalies as inputs and a report as output."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts

from components.data_gate.executor import Executor
from components.data_gate.plan import GatePlan


class DataGateSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """Inputs, outputs and parameters of the component."""

    PARAMETERS: ClassVar = {"plan": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {
        "statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        "anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies),
    }
    OUTPUTS: ClassVar = {"report": component_spec.ChannelParameter(type=standard_artifacts.JsonValue)}


class DataGate(base_component.BaseComponent):  # type: ignore[misc]
    """A component that stops the run if the data has anomalies, or only reports them, as configured.

    Args:
      plan: Settings of the gate.
      statistics: Output of StatisticsGen.
      anomalies: Output of ExampleValidator.
    """

    SPEC_CLASS = DataGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, plan: GatePlan, *, statistics: BaseChannel, anomalies: BaseChannel) -> None:
        spec = DataGateSpec(
            plan=plan.model_dump_json(),
            statistics=statistics,
            anomalies=anomalies,
            report=Channel(type=standard_artifacts.JsonValue),
        )
        super().__init__(spec=spec)
