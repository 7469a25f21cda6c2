"""The entry of Monitor in the list of nodes, and how its findings are shown at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.base.node import NodeWithResult
from components.monitor.result import Monitoring


class MonitorNode(NodeWithResult[Monitoring]):
    """Monitor, which judges the requests to the versions that serve."""

    def parse_result(self, text: str) -> Monitoring:
        """Parse the JSON that the executor wrote."""
        return Monitoring.from_dict(json.loads(text))

    def to_json(self, result: Monitoring) -> Mapping[str, Any]:
        """Return the result without the comparisons of columns, which are too long for a summary."""
        return result.brief().to_dict()

    def list_findings(self, result: Monitoring) -> Sequence[str]:
        """Return the columns that have drifted and the bounds that are exceeded."""
        return [f"requests: {finding}" for finding in result.findings()]


NODES = (MonitorNode("Monitor", outputs=("monitoring",)),)
