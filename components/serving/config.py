"""The `serving` section: the check of a model in a model server before it is pushed, and the local model server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.base.config_section import Section
from components.base.serving_images import TENSORFLOW_SERVING


class ServingConfig(Section):
    """The serving check: a separate model server loads the model and answers requests with rows of the eval split. And
    the processes of the server that `runner.py serve` starts.
    """

    check: Literal["server", "docker", "kubernetes", "none"] = "server"
    """Model server that checks the model: `server` is the local server, as a process; `docker` and `kubernetes` run the
    image of TensorFlow Serving; `none` skips the check."""
    examples: int = Field(default=64, ge=1, le=10_000)
    """Number of rows of the eval split to send. The first 16 become warm-up requests of the pushed model."""
    tolerance: float = Field(default=1e-4, ge=0)
    """Largest difference between a response and the SavedModel's prediction: absolute below one, otherwise relative."""
    max_p99_ms: float | None = Field(default=1000.0, gt=0)
    """Upper bound on the 99th percentile of the latency, in milliseconds, for requests of one row sent one by one."""
    max_loading_seconds: int = Field(default=300, ge=1)
    """Seconds that the server may take to start and to load the model. After that the check fails without a verdict."""
    image: str = TENSORFLOW_SERVING
    """Image of TensorFlow Serving for `check: docker` and `check: kubernetes`."""
    isolate_versions: bool = False
    """Whether `runner.py serve` loads each version in a process of its own. A version that crashes or uses too much
    memory is started again, and the other versions continue to answer."""
    max_version_mb: int | None = Field(default=None, ge=256)
    """Memory of the process of a version in MiB. A process that uses more is killed and started again. By default, the
    memory is not limited. It requires `isolate_versions`."""

    @model_validator(mode="after")
    def _limits_processes(self) -> ServingConfig:
        if self.max_version_mb is not None and not self.isolate_versions:
            raise ValueError(
                f"max_version_mb: expected isolate_versions: true with a limit, received {self.max_version_mb} without "
                "it; set isolate_versions, or remove the limit"
            )
        return self

    def dump_check(self) -> str:
        """Return the settings of the check as JSON. The others do not change its result."""
        return self.model_dump_json(exclude={"isolate_versions", "max_version_mb"})
