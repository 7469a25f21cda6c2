"""The node Monitor: compare the newest requests to the pushed versions with training rows and delayed labels."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import Channel, component_spec, standard_artifacts

from components.monitor.driver import Driver
from components.monitor.executor import Executor
from components.monitor.plan import MonitorPlan


class MonitorSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """Parameters and output of Monitor.

    The parameters are a plan and a push folder. The driver adds the pushed versions, and a digest of the requests and
    labels.
    """

    PARAMETERS: ClassVar = {
        "plan": component_spec.ExecutionParameter(type=str),
        "pushed": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, component_spec.ChannelParameter]] = {}
    OUTPUTS: ClassVar = {"monitoring": component_spec.ChannelParameter(type=standard_artifacts.JsonValue)}


class Monitor(base_component.BaseComponent):  # type: ignore[misc]
    """Compares requests with training rows and labels; its output is `monitoring`.

    It does not depend on other nodes, because the versions that answer requests were pushed by earlier runs.

    Args:
      plan: Where the requests and labels are, and the bounds.
      pushed: Push folder whose versions are monitored.
    """

    SPEC_CLASS = MonitorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, plan: MonitorPlan, pushed: str) -> None:
        monitoring = Channel(type=standard_artifacts.JsonValue)
        super().__init__(spec=MonitorSpec(plan=plan.model_dump_json(), pushed=pushed, monitoring=monitoring))
