"""The node SizeGate, which stops the run if the model is too large: its section of the config and its descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import PositiveFloat

from components.base.config_section import Problem, Section
from components.base.node import OptionalNode, Wiring


class SizeConfig(Section):
    """The limit for the exported model."""

    max_mb: PositiveFloat
    """Megabytes (10^6 bytes) of the SavedModel, all files together."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield a limit that no model of this kind meets."""
        if config.model.kind == "application" and self.max_mb < 1:
            yield Problem(("size", "max_mb"), f"expected at least 1 for application, received {self.max_mb:g}")


class SizeGateNode(OptionalNode):
    """SizeGate, on which the Pusher waits."""

    section = "size"
    section_type = SizeConfig | None
    component = "example_addon.component:SizeGate"

    def build(self, wiring: Wiring) -> Any:
        """Build the component, which reads the model."""
        gate = self.load_component()(model=wiring.nodes["Trainer"].outputs["model"], max_mb=wiring.config.size.max_mb)
        return gate.with_id(self.name)


SIZE_GATE = SizeGateNode("SizeGate", outputs=(), upstream=("Trainer",))
