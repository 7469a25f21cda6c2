"""`training.where`: a service that runs the training's tasks as a job, which the Trainer submits and follows."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from components.base.config_section import Section


class WhereConfig(Section):
    """A service that trains, and the resources of its tasks."""

    kind: Literal["tfjob", "jobset", "vertex"]
    """tfjob: a TFJob of Kubeflow's training operator 1.x; jobset: a JobSet of Kubernetes; vertex: a CustomJob of Vertex
    AI."""
    image: str = Field(min_length=1)
    """The container image: this project in its working folder, and its packages in the versions of this run."""
    start_minutes: PositiveFloat = 30.0
    """How long the tasks may wait for machines and images; then the job is deleted and the run fails."""
    service_account: str | None = None
    """The service account of the tasks."""
    namespace: str | None = None
    """tfjob, jobset: the namespace. Default: the namespace of the context, or of the Trainer's pod."""
    context: str | None = None
    """tfjob, jobset: a context of the kubeconfig (KUBECONFIG, or ~/.kube/config). Default: the current context; without
    a kubeconfig, the service account of the Trainer's pod."""
    volumes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """tfjob, jobset: mount path → source of a Kubernetes volume, such as
    `/mnt/train: {persistentVolumeClaim: {claimName: train}}`. The run's artifacts must be below a mount path, or in an
    object store."""
    resources: dict[str, str | int] = Field(default_factory=dict)
    """tfjob, jobset: requests and limits of each task, such as `{cpu: 4, memory: 16Gi, nvidia.com/gpu: 1}`."""
    project: str | None = None
    """vertex: the Google Cloud project."""
    region: str | None = None
    """vertex: the region, such as europe-west4."""
    machine: str = "n1-standard-8"
    """vertex: the machine type of each task."""
    endpoint: str | None = None
    """vertex: address of the API, for a private endpoint. Default: the public endpoint of the region."""

    @field_validator("volumes")
    @classmethod
    def _check_volumes(cls, volumes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for path, source in volumes.items():
            if not PurePosixPath(path).is_absolute():
                raise ValueError(f"expected absolute mount paths, received {path!r}")
            if len(source) != 1:
                raise ValueError(
                    f"{path}: expected one source such as persistentVolumeClaim, received {', '.join(source) or 'none'}"
                )
        return volumes

    @model_validator(mode="after")
    def _check_kind(self) -> WhereConfig:
        if self.kind == "vertex" and not (self.project and self.region):
            raise ValueError("vertex requires a project and a region")
        return self

    def mounts(self, folder: str) -> bool:
        """Whether the tasks see a local folder, because it is below a mount path."""
        return any(PurePosixPath(folder).is_relative_to(path) for path in self.volumes)
