"""Describes Monitor: its section of the config, how it is built, and its findings at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.base.node import NodeWithResult, OptionalNode, ReportSection, Wiring
from components.evaluator.config import Threshold
from components.evaluator.node import list_code as list_evaluator_code
from components.monitor.config import MonitorConfig
from components.monitor.plan import make_plan
from components.monitor.report_section import make_section
from components.monitor.result import Monitoring


class MonitorNode(NodeWithResult[Monitoring], OptionalNode):
    """Monitor, which judges the requests to the versions that serve."""

    section = "monitor"
    component = "components.monitor.component:Monitor"
    section_type = MonitorConfig | None
    before_push = False

    def list_thresholds(self, config: Any) -> Iterator[tuple[tuple[str | int, ...], Threshold]]:
        """Yield the bounds of the metrics that are computed from labels."""
        for name, threshold in config.monitor.thresholds.items():
            yield ("monitor", "thresholds", name), threshold

    def list_code(self, config: Any) -> Sequence[str]:
        """Return the package, the code that reads and compares requests, and the Evaluator's code."""
        names = ("column_comparison", "private_columns", "request_log")
        requests = [f"components.data.{name}" for name in names]
        return ("components.monitor", *requests, *list_evaluator_code(config))

    def build(self, wiring: Wiring) -> Any:
        """Build the component, unless requests are not configured or no driver could find the pushed versions."""
        plan = make_plan(wiring.config, wiring.plans, wiring.inputs.code)
        return None if plan is None or wiring.managed else self.load_component()(plan, wiring.config.paths().pushed)

    def parse_result(self, text: str) -> Monitoring:
        """Parse the JSON that the executor wrote."""
        return Monitoring.from_dict(json.loads(text))

    def to_json(self, result: Monitoring) -> Mapping[str, Any]:
        """Return the result without the comparisons of columns, which are too long for a summary."""
        return result.brief().to_dict()

    def make_section(self, result: Monitoring) -> ReportSection:
        """Return the section on served requests."""
        return make_section(result)

    def list_findings(self, result: Monitoring) -> Sequence[str]:
        """Return the columns that have drifted and the bounds that are exceeded."""
        return [f"requests: {finding}" for finding in result.findings()]


NODES = (MonitorNode("Monitor", outputs=("monitoring",)),)
