"""The sections `schedule`, `kubeflow` and `vertex`: when orchestrators start runs, and where the nodes run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from components.base.config_section import Problem, Section
from components.base.names import did_you_mean
from components.ingest import spans
from pipeline.authoring.config.runtime import Bucket, Labels

EVERY = "every"
"""Key of `resources` for all nodes that do not have an entry."""

Dns = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""Valid name of a Kubernetes object."""
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of an environment variable."""


class Resources(Section):
    """Resource limits of a container."""

    cpu: PositiveFloat | None = None
    """Number of CPU cores."""
    memory_gb: PositiveFloat | None = None
    """Memory, in 10⁹ bytes. A container that exceeds it is killed."""
    gpus: PositiveInt | None = None
    """Number of Nvidia GPUs."""


class SecretKey(Section):
    """A value in a Kubernetes secret."""

    secret: Dns
    """Name of the secret, in the namespace of the runs."""
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key of the value in the secret."""


class KubeflowConfig(Section):
    """Kubeflow Pipelines, which run every node in a container, with a shared volume and a metadata server."""

    image: Image
    """Container image with this project, this config and your modules in its working folder. deploy/docker builds
    it."""
    claim: Dns
    """Name of a PersistentVolumeClaim with access mode ReadWriteMany, in the namespace of the runs."""
    mount: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*[^/\x00]$")] = "/data"
    """Path at which containers mount the claim. Runs write to <mount>/out, and the data may be there as well."""
    secrets: dict[Variable, SecretKey] = Field(default_factory=dict)
    """Environment variable → secret with its value, such as the password of the metadata store."""
    environment: dict[Variable, str] = Field(default_factory=dict)
    """Environment variable → value, for values that are not secret."""
    resources: dict[str, Resources] = Field(default_factory=dict)
    """Node → resources of its container. The key `every` applies to all nodes without an entry. By default, the cluster
    sets the limits."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the machines on which the containers run."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the pods, such as `kueue.x-k8s.io/queue-name: training` for a queue of Kueue."""
    user: PositiveInt | None = None
    """ID of the user that the containers run as; root is refused. By default, the user of the image, which is 1000
    for deploy/docker."""
    service_account: Dns | None = None
    """Service account of the containers. By default, Kubeflow selects it."""
    host: Annotated[str, StringConstraints(pattern=r"^https?://")] | None = None
    """URL of Kubeflow's API, for `--submit`."""
    namespace: Dns | None = None
    """Namespace of the runs, for a multi-user installation of Kubeflow."""
    experiment: Annotated[str, StringConstraints(min_length=1)] = "Default"
    """Kubeflow experiment of the runs."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield entries of `resources` for nodes that the pipeline does not have."""
        names = (*config.node_names(), EVERY)
        for name in self.resources:
            if name not in names:
                message = f"the pipeline has no node {name!r}{did_you_mean(name, names)}"
                yield Problem(("kubeflow", "resources", name), message)


class ResourcesConfig(Section):
    """Resource requests of a node's container. The service selects a machine type that meets them."""

    cpu: float | None = Field(default=None, gt=0, le=416)
    """Number of CPU cores. By default, the service decides."""
    memory_gb: float | None = Field(default=None, gt=0, le=11776)
    """Memory in GB. By default, the service decides."""
    accelerator: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$")] | None = None
    """Type of accelerator, such as NVIDIA_L4 or NVIDIA_TESLA_T4. The image must contain the libraries with which
    TensorFlow uses it."""
    accelerators: Literal[1, 2, 4, 8, 16] = 1
    """Number of accelerators."""


class VertexPipelinesConfig(Section):
    """Vertex AI Pipelines, for `--vertex`. Credentials come from the environment."""

    project: str = Field(min_length=1)
    """Google Cloud project that is billed."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """Region of the nodes, such as us-central1. Choose the region of the data."""
    image: Image
    """Container image of the nodes, with this project in its working folder, the dependencies and your modules.
    deploy/docker builds it. Do not reuse a tag for another image, because the service's cache compares image names."""
    root: Bucket
    """Folder for the artifacts, gs://. Unless `push.directory` is set, models are pushed to its subfolder `pushed`."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Service account of the nodes. By default, the project's Compute Engine account, which has many permissions."""
    network: Annotated[str, StringConstraints(pattern=r"^projects/[^/]+/global/networks/[^/]+$")] | None = None
    """VPC network to peer with, such as projects/12345/global/networks/mine."""
    labels: Labels = Field(default_factory=dict)
    """Label → value of every job, for billing reports."""
    resources: dict[str, ResourcesConfig] = Field(default_factory=dict)
    """Node → resource requests of its container, as in `Trainer: {cpu: 8, memory_gb: 32}`."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+$")] | None = None
    """Address of the API for `--submit`, for example a Private Service Connect endpoint. By default, the public
    address."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield entries of `resources` for nodes that the pipeline does not have, or that run without a container."""
        standard = config.standard_nodes()
        names = [name for name in config.node_names() if name not in standard or not standard[name].only_looks_up]
        for name in self.resources:
            if name not in names:
                message = f"expected a node with a container, received {name!r}{did_you_mean(name, names)}"
                yield Problem(("vertex", "resources", name), message)


_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_CRON_FIELDS = 5


class ScheduleConfig(Section):
    """When the pipeline runs. At most one run of a pipeline is in progress at a time."""

    every: str = "@daily"
    """Cron expression with five fields, or @hourly, @daily, @weekly, @monthly or @yearly."""
    start: date
    """First day of the schedule, in UTC."""
    catch_up: bool = False
    """Whether to run the scheduled times that were missed since `start`, oldest first."""
    span: Literal["newest", "date"] = "newest"
    """Span that a run reads. newest: the newest span; date: the span of the day for which the run is scheduled, in days
    since 1970, so that a run for a day in the past reads the data of that day."""
    only_if: Literal["every", "new_span", "drift"] = "every"
    """Condition for a scheduled run. every: always run; new_span: run if the data has a newer span than the last run
    that evaluated a model; drift: run if there is a newer span and, in addition, a column has changed by `drift`
    since that run or served requests have drifted (section `monitor`)."""
    drift: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Distance of a column at which a new model is trained, as `runs diff-data` measures it: 0 for the same
    distribution, 1 for columns without common values. To choose it, first measure the distance of two ordinary
    spans."""
    retries: NonNegativeInt = 2
    """Number of retries of a failed node."""
    retry_minutes: NonNegativeFloat = 5.0
    """Pause before a retry, in minutes."""
    timeout_hours: PositiveFloat = 24.0
    """Maximum duration of a node, in hours. A node that takes longer is terminated and counts as failed."""
    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Airflow pool in which the nodes run."""
    owner: Annotated[str, StringConstraints(min_length=1)] = Field(default="airflow")
    """Owner of the tasks in Airflow."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield settings that require spans, if the data does not have spans."""
        if any(spans.has_specs(path) for path in config.data.path):
            return
        for field, value in (("span", "date"), ("only_if", "new_span"), ("only_if", "drift")):
            if getattr(self, field) == value:
                expected = "expected a data.path with {SPAN}, or {YYYY}, {MM} and {DD}; received none of them"
                yield Problem(("schedule", field), f"{expected}: {value} requires data with spans")

    @property
    def cron(self) -> str:
        """The schedule as a cron expression with five fields, for services that do not know names such as @daily."""
        return _PRESETS.get(self.every, self.every)

    @field_validator("every")
    @classmethod
    def _is_known(cls, every: str) -> str:
        if every not in _PRESETS and (every.startswith("@") or len(every.split()) != _CRON_FIELDS):
            raise ValueError(f"expected five fields of cron or one of {', '.join(_PRESETS)}, received {every!r}")
        return every

    @model_validator(mode="after")
    def _goes_by_one_span(self) -> Self:
        if self.only_if == "drift" and self.span == "date":
            raise ValueError("only_if: drift compares the newest span; expected span: newest, received span: date")
        return self


BY_HAND = ScheduleConfig.model_validate({"start": "2020-01-01"})
"""Retries and timeouts of a pipeline without a section `schedule`, which users start by hand."""


def _require_tag_or_digest(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@sha256:" not in name and name.rpartition(":")[2] in ("", name, "latest"):
        raise ValueError(f"expected an image with a tag or a digest, so that a run can be repeated; received {image!r}")
    return image


Image = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_tag_or_digest)]
"""Container image with a tag or digest."""
