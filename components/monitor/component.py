"""The node Monitor: what the newest requests to the pushed versions, and labels that have arrived, show."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import Channel, component_spec, standard_artifacts

from components.monitor.driver import Driver
from components.monitor.executor import Executor
from components.monitor.plan import MonitorPlan


class MonitorSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """A plan and a push folder; the driver adds the versions, and a digest of the requests and labels."""

    PARAMETERS: ClassVar = {
        "plan": component_spec.ExecutionParameter(type=str),
        "pushed": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, component_spec.ChannelParameter]] = {}
    OUTPUTS: ClassVar = {"monitoring": component_spec.ChannelParameter(type=standard_artifacts.JsonValue)}


class Monitor(base_component.BaseComponent):  # type: ignore[misc]
    """Compares requests with training rows and labels; depends on no other node, since versions of earlier runs serve.

    Args:
      plan: the requests, labels and bounds.
      pushed: the push folder whose versions are monitored.
    """

    SPEC_CLASS = MonitorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, plan: MonitorPlan, pushed: str) -> None:
        monitoring = Channel(type=standard_artifacts.JsonValue)
        super().__init__(spec=MonitorSpec(plan=plan.model_dump_json(), pushed=pushed, monitoring=monitoring))
