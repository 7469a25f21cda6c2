"""`training.where`: a service that runs the training's tasks as a job, which the Trainer submits and follows."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints, field_validator, model_validator

from components.base.config_section import Section, check_fields_of_kind

_KUBERNETES = ("jobset", "trainjob", "tfjob")
_KUBERNETES_FIELDS = (
    *("node_selector", "tolerations", "priority_class", "shared_memory", "spread"),
    *("queue", "isolated", "hardened", "grace_seconds"),
)
_KINDS = {
    **dict.fromkeys(_KUBERNETES_FIELDS, _KUBERNETES),
    **dict.fromkeys(("accelerator", "accelerators", "spot"), ("vertex",)),
}
"""Field → the kinds of services that have it."""
Role = Literal["chief", "worker", "ps", "evaluator"]


class TaskConfig(Section):
    """The machines of tasks."""

    resources: dict[str, str | int] = Field(default_factory=dict)
    """Kubernetes: requests and limits of each task, such as `{cpu: 4, memory: 16Gi, nvidia.com/gpu: 1}`."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Kubernetes: labels of the nodes, such as `{cloud.google.com/gke-spot: "true"}`."""
    tolerations: tuple[dict[str, Any], ...] = ()
    """Kubernetes: taints of nodes that the tasks tolerate, in Kubernetes' form."""
    priority_class: str | None = None
    """Kubernetes: name of a PriorityClass."""
    shared_memory: str | None = None
    """Kubernetes: size of /dev/shm, such as 8Gi, through which GPUs of a machine exchange gradients. It is a part of
    the task's memory. Default: what the cluster sets, often 64Mi."""
    machine: str = "n1-standard-8"
    """vertex: the machine type of each task."""
    accelerator: str | None = None
    """vertex: the type of the accelerators, such as NVIDIA_TESLA_T4."""
    accelerators: PositiveInt = 1
    """vertex: number of accelerators of each task, if there is a type."""


class WhereConfig(TaskConfig):
    """A service that trains, and the resources of its tasks."""

    kind: Literal["jobset", "trainjob", "tfjob", "vertex"]
    """jobset: a JobSet of Kubernetes; trainjob: a TrainJob of Kubeflow Trainer v2, which creates such a JobSet; tfjob
    (legacy): a TFJob of Kubeflow's training operator 1.x, which is no longer developed; vertex: a CustomJob of Vertex
    AI."""
    image: str = Field(min_length=1)
    """The container image: this project in its working folder, and its packages in the versions of this run."""
    roles: dict[Role, TaskConfig] = Field(default_factory=dict)
    """Role → what differs from the other tasks, such as `ps: {resources: {cpu: 4, memory: 64Gi}}`. A single task, as
    with `strategy: none`, is a worker."""
    spread: str | None = None
    """Kubernetes: a label of nodes whose values the tasks are spread over, if possible, such as
    topology.kubernetes.io/zone."""
    queue: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    """Kubernetes: LocalQueue of Kueue, which keeps the job suspended until its quota suffices for all tasks. The time
    in the queue does not count towards `start_minutes`."""
    isolated: bool = False
    """Kubernetes: whether to create a NetworkPolicy that admits only the tasks of the same job to the tasks' port,
    because TensorFlow does not authenticate its peers. It has an effect if the cluster's network supports policies."""
    hardened: bool = True
    """Kubernetes: whether the tasks run with a read-only root file system and without privileges, as the Pod Security
    Standard *restricted* demands. /tmp is an empty volume. A run by root starts tasks as root nevertheless."""
    spot: bool = False
    """vertex: use spot machines, which may be taken away at any time. On Kubernetes, select their nodes by
    `node_selector` and `tolerations`."""
    grace_seconds: PositiveInt | None = None
    """Kubernetes: how many seconds the tasks of a deleted or evicted job have to save a checkpoint before they are
    killed. Default: 30, which Kubernetes sets."""
    start_minutes: PositiveFloat = 30.0
    """How long the tasks may wait for machines and images; then the job is deleted and the run fails."""
    service_account: str | None = None
    """The service account of the tasks."""
    namespace: str | None = None
    """Kubernetes: the namespace. Default: the namespace of the context, or of the Trainer's pod."""
    context: str | None = None
    """Kubernetes: a context of the kubeconfig (KUBECONFIG, or ~/.kube/config). Default: the current context; without
    a kubeconfig, the service account of the Trainer's pod."""
    volumes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Kubernetes: mount path → source of a Kubernetes volume, such as
    `/mnt/train: {persistentVolumeClaim: {claimName: train}}`. The run's artifacts must be below a mount path, or in an
    object store."""
    project: str | None = None
    """vertex: the Google Cloud project."""
    region: str | None = None
    """vertex: the region, such as europe-west4."""
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
        for tasks in (self, *self.roles.values()):
            check_fields_of_kind(tasks, _KINDS, self.kind)
        return self

    def task(self, role: str) -> TaskConfig:
        """Return the machines of a role's tasks: the fields of the role, and the others of this section.

        Args:
          role: A Role.
        """
        own = self.roles.get(role, TaskConfig())  # type: ignore[call-overload]
        fields = {name: getattr(self, name) for name in TaskConfig.model_fields}
        return TaskConfig.model_construct(**fields | {name: getattr(own, name) for name in own.model_fields_set})

    def mounts(self, folder: str) -> bool:
        """Whether the tasks see a local folder, because it is below a mount path."""
        return any(PurePosixPath(folder).is_relative_to(path) for path in self.volumes)
