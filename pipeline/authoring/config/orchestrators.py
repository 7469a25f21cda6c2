"""The sections `schedule`, `kubeflow` and `vertex`: when an orchestrator starts a run, and where its nodes run."""

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
"""Key of `resources` for all nodes without an entry of their own."""

Dns = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""A valid name of a Kubernetes object."""
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""A variable of the environment."""


class Resources(Section):
    """Resource limits of a container."""

    cpu: PositiveFloat | None = None
    """Cores."""
    memory_gb: PositiveFloat | None = None
    """Memory, in 10⁹ bytes; a container that exceeds it is killed."""
    gpus: PositiveInt | None = None
    """Number of Nvidia GPUs."""


class SecretKey(Section):
    """A value in a Kubernetes secret."""

    secret: Dns
    """The secret's name, in the namespace of the runs."""
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$")]
    """The key in it."""


class KubeflowConfig(Section):
    """Kubeflow Pipelines: a container for each node, a shared volume, metadata on a server."""

    image: Image
    """This project, this config and your own modules, in the image's working folder; deploy/docker makes it."""
    claim: Dns
    """A PersistentVolumeClaim with access mode ReadWriteMany, in the namespace of the runs."""
    mount: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*[^/\x00]$")] = "/data"
    """Its mount path in the containers; a run's outputs go to <mount>/out, and the data may be there as well."""
    secrets: dict[Variable, SecretKey] = Field(default_factory=dict)
    """Variable → the secret with its value, such as the password of the metadata store."""
    environment: dict[Variable, str] = Field(default_factory=dict)
    """Variable → value, for values that are not secret."""
    resources: dict[str, Resources] = Field(default_factory=dict)
    """Node → resources of its container; `every`: all nodes without an entry. By default those of the cluster."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the machines for the containers."""
    service_account: Dns | None = None
    """The service account of the containers; by default Kubeflow selects it."""
    host: Annotated[str, StringConstraints(pattern=r"^https?://")] | None = None
    """Kubeflow's API, for --submit."""
    namespace: Dns | None = None
    """The namespace of the runs, for a multi-user Kubeflow."""
    experiment: Annotated[str, StringConstraints(min_length=1)] = "Default"
    """The experiment of the runs."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield resources of nodes that the pipeline does not have."""
        names = (*config.node_names(), EVERY)
        for name in self.resources:
            if name not in names:
                message = f"the pipeline has no node {name!r}{did_you_mean(name, names)}"
                yield Problem(("kubeflow", "resources", name), message)


class ResourcesConfig(Section):
    """Resource requests of one node's container; the service selects a machine type for them."""

    cpu: float | None = Field(default=None, gt=0, le=416)
    """Cores; by default the service decides."""
    memory_gb: float | None = Field(default=None, gt=0, le=11776)
    """Memory in GB; by default the service decides."""
    accelerator: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$")] | None = None
    """Type, such as NVIDIA_L4 or NVIDIA_TESLA_T4; the image must contain the libraries that TensorFlow requires for
    it."""
    accelerators: Literal[1, 2, 4, 8, 16] = 1
    """Number of accelerators."""


class VertexPipelinesConfig(Section):
    """Vertex AI Pipelines, for `--vertex`; credentials come from the environment."""

    project: str = Field(min_length=1)
    """The Google Cloud project that is billed."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """The region of the nodes, such as us-central1; best that of the data."""
    image: Image
    """The container of every node: this project in its working folder, its dependencies, your own modules;
    deploy/docker builds it. Never move its tag: the service's cache compares image names."""
    root: Bucket
    """A gs:// folder for the artifacts; without push.directory, models go to its folder `pushed`."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """The account of the nodes; by default the project's Compute Engine account, which has many permissions."""
    network: Annotated[str, StringConstraints(pattern=r"^projects/[^/]+/global/networks/[^/]+$")] | None = None
    """A VPC network to peer with, such as projects/12345/global/networks/mine."""
    labels: Labels = Field(default_factory=dict)
    """Name → value on each job, for billing reports."""
    resources: dict[str, ResourcesConfig] = Field(default_factory=dict)
    """Node → resource requests of its container, such as Trainer: {cpu: 8, memory_gb: 32}."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+$")] | None = None
    """Another address of the API for `--submit`, such as that of a Private Service Connect endpoint."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield resources of nodes that the pipeline does not have, or that Vertex AI looks up without a container."""
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
    """When the pipeline runs; at most one run of a pipeline is in progress."""

    every: str = "@daily"
    """A cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    start: date
    """The first day, in UTC."""
    catch_up: bool = False
    """Whether missed days between `start` and now are run, oldest first."""
    span: Literal["newest", "date"] = "newest"
    """The data of a run. newest: the newest span. date: the span of the run's own day, in days since 1970, so that a
    run for a day in the past reads the data of that day."""
    only_if: Literal["every", "new_span", "drift"] = "every"
    """every: each time. new_span: only if the data has a newer span than the last run that evaluated a model. drift:
    only if, in addition, a column has changed by `drift` since that run, or served requests have drifted (section
    `monitor`)."""
    drift: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The distance of a column from which a new model is trained, as `runs diff-data` measures it (0: the same
    distribution, 1: no common values). First measure the distance of two ordinary spans."""
    retries: NonNegativeInt = 2
    """Number of retries of a failed node."""
    retry_minutes: NonNegativeFloat = 5.0
    """The pause before a retry."""
    timeout_hours: PositiveFloat = 24.0
    """A node that takes longer is terminated and counts as failed."""
    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Airflow's pool for the nodes."""
    owner: Annotated[str, StringConstraints(min_length=1)] = Field(default="airflow")
    """The owner of the tasks in Airflow."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield a schedule by spans, if the data does not have spans."""
        if any(spans.has_specs(path) for path in config.data.path):
            return
        for field, value in (("span", "date"), ("only_if", "new_span"), ("only_if", "drift")):
            if getattr(self, field) == value:
                expected = "expected a data.path with {SPAN}, or {YYYY}, {MM} and {DD}; received none of them"
                yield Problem(("schedule", field), f"{expected}: {value} requires data with spans")

    @property
    def cron(self) -> str:
        """`every` as five fields of cron, for services without names such as @daily."""
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
"""Retries and timeouts of a pipeline without a section `schedule`, whose runs users start."""


def _pinned(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@sha256:" not in name and name.rpartition(":")[2] in ("", name, "latest"):
        raise ValueError(f"expected an image with a tag or a digest, so that a run can be repeated; received {image!r}")
    return image


Image = Annotated[str, StringConstraints(min_length=1), AfterValidator(_pinned)]
"""An image with a tag or digest."""
