"""The `push` section of the config: where blessed models go."""

from __future__ import annotations

from components.section import Section


class PushConfig(Section):
    """The folder that a model server watches; each pushed model is a numbered folder in it."""

    directory: str | None = None
    """The folder, local or remote such as gs://bucket/models/taxi; the run's own folder `pushed` if not given."""
