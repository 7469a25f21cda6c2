"""The `serving` section: the check of a model in a model server before it is pushed, and its limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.base.config_section import Section


class ServingConfig(Section):
    """The serving check: the model in a model server of its own, which answers rows of the eval split."""

    check: Literal["server", "docker", "kubernetes", "none"] = "server"
    """The model server: the local one as a process; TensorFlow Serving's image in Docker or Kubernetes; or no check."""
    examples: int = Field(default=64, ge=1, le=10_000)
    """Rows of the eval split that are sent; they also become the pushed model's warm-up requests."""
    tolerance: float = Field(default=1e-4, ge=0)
    """Largest difference of an answer to the SavedModel's prediction, absolute for values below one, else relative."""
    max_p99_ms: float | None = Field(default=1000.0, gt=0)
    """Milliseconds within which 99 of 100 requests for one row must be answered, one after the other."""
    max_loading_seconds: int = Field(default=300, ge=1)
    """Seconds that the server may take to start and load the model; the check fails after them, without a verdict."""
    image: str = "tensorflow/serving:2.16.1"
    """With docker or kubernetes: the image."""
