"""What the Pusher depends on, as JSON in its parameters."""

from __future__ import annotations

from components.pusher.config import PushConfig
from components.section import Section


class PushPlan(Section):
    """The push section, and the name that the model is served under."""

    push: PushConfig
    model_name: str
