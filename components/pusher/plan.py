"""The plan of the Pusher: the settings in its cache key."""

from __future__ import annotations

from components.base.config_section import Section
from components.pusher.config import PushConfig


class PushPlan(Section):
    """The `push` section, and the model's name in requests."""

    push: PushConfig
    model_name: str
