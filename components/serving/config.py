"""The `serving` section: how a model is tried in a model server before it is pushed, and what it has to keep."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.section import Section


class ServingConfig(Section):
    """The serving check: the model in a model server of its own, asked for rows of the eval split."""

    check: Literal["server", "docker", "kubernetes", "none"] = "server"
    """Which model server: ours as a process; TensorFlow Serving's image in Docker or Kubernetes; or no check."""
    examples: int = Field(default=64, ge=1, le=10_000)
    """Rows that are asked for; the pushed model is warmed up with them, too."""
    tolerance: float = Field(default=1e-4, ge=0)
    """How far an answer may be from the Evaluator's prediction, absolute for values below one, else relative."""
    max_p99_ms: float | None = Field(default=1000.0, gt=0)
    """Milliseconds in which 99 of 100 requests for one row have to be answered, one after the other."""
    max_loading_seconds: int = Field(default=300, ge=1)
    """How long the server may take to start and to load the model."""
    image: str = "tensorflow/serving:2.16.1"
    """With docker or kubernetes: the image."""
