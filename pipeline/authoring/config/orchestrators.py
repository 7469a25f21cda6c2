"""The sections `schedule`, `kubeflow` and `vertex`: when an orchestrator starts a run, and where its nodes run."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

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

from components.config_section import Section
from components.names import did_you_mean
from pipeline.authoring.config.runtime import Bucket, Labels
from pipeline.core.records import NODES

EVERY = "every"
"""Among `resources`: what a node gets that has no entry of its own."""


def _of_nodes(given: dict[str, Resources]) -> dict[str, Resources]:
    for name in given:
        if name != EVERY and name not in NODES:
            raise ValueError(f"the pipeline has no node {name!r}{did_you_mean(name, (*NODES, EVERY))}")
    return given


Dns = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""A name as Kubernetes takes it."""
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""A variable of the environment."""


class Resources(Section):
    """What a container may use."""

    cpu: PositiveFloat | None = None
    """Cores."""
    memory_gb: PositiveFloat | None = None
    """Memory, in 10⁹ bytes; who takes more is killed."""
    gpus: PositiveInt | None = None
    """Accelerators of Nvidia's."""


class SecretKey(Section):
    """A value in a secret of Kubernetes."""

    secret: Dns
    """The secret's name, in the namespace that the runs are in."""
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$")]
    """The key in it."""


class KubeflowConfig(Section):
    """Kubeflow Pipelines: a container for each node, a volume that all of them see, metadata on a server."""

    image: Image
    """This project, this config and your own modules, in the image's working folder; deploy/docker makes it."""
    claim: Dns
    """A PersistentVolumeClaim that many pods may write to at once (ReadWriteMany), in the namespace of the runs."""
    mount: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*[^/\x00]$")] = "/data"
    """Where the containers see it; a run's outputs go to <mount>/out, and data may lie there too."""
    secrets: dict[Variable, SecretKey] = Field(default_factory=dict)
    """Variable → where its value is, such as the password of the metadata store."""
    environment: dict[Variable, str] = Field(default_factory=dict)
    """Variable → value, for what is no secret."""
    resources: Annotated[dict[str, Resources], AfterValidator(_of_nodes)] = Field(default_factory=dict)
    """Node → what its container may use; `every`: all nodes that have no entry. Without any, what the cluster gives."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the machines that the containers may run on."""
    service_account: Dns | None = None
    """Whose rights the containers have; Kubeflow's own choice if not given."""
    host: Annotated[str, StringConstraints(pattern=r"^https?://")] | None = None
    """Kubeflow's API, for --submit."""
    namespace: Dns | None = None
    """The namespace that the runs are in, for a Kubeflow of several users."""
    experiment: Annotated[str, StringConstraints(min_length=1)] = "Default"
    """The experiment that the runs belong to."""


_LOOKED_UP = ("BaseModel", "LatestBlessedModel")
"""Nodes that the service answers from its metadata, without a container."""
_WITH_CONTAINER = tuple(node for node in NODES if node not in _LOOKED_UP)


def _nodes(given: dict[str, ResourcesConfig]) -> dict[str, ResourcesConfig]:
    for name in given:
        if name not in _WITH_CONTAINER:
            raise ValueError(
                f"expected a node with a container, received {name!r}{did_you_mean(name, _WITH_CONTAINER)}"
            )
    return given


class ResourcesConfig(Section):
    """What one node's container asks for; the service picks a machine that has it."""

    cpu: float | None = Field(default=None, gt=0, le=416)
    """Cores; the service's choice if not given."""
    memory_gb: float | None = Field(default=None, gt=0, le=11776)
    """Memory in GB; the service's choice if not given."""
    accelerator: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$")] | None = None
    """Such as NVIDIA_L4 or NVIDIA_TESLA_T4; the image has to bring what TensorFlow needs for it."""
    accelerators: Literal[1, 2, 4, 8, 16] = 1
    """How many of them."""


class VertexPipelinesConfig(Section):
    """Vertex AI Pipelines, for `--vertex`; credentials come from the environment."""

    project: str = Field(min_length=1)
    """The Google Cloud project that pays."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """Where the nodes run, such as us-central1; best where the data is."""
    image: Image
    """The container of every node: this project in its working folder, what it needs, your own modules; deploy/docker
    makes it. Never move its tag: the service's cache goes by the name."""
    root: Bucket
    """A gs:// folder for what nodes hand to each other; without push.directory, models go to `pushed` below it."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Whose rights the nodes have; the project's Compute Engine account, which may do much, if not given."""
    network: Annotated[str, StringConstraints(pattern=r"^projects/[^/]+/global/networks/[^/]+$")] | None = None
    """A VPC network to peer with, such as projects/12345/global/networks/mine."""
    labels: Labels = Field(default_factory=dict)
    """Name → value on each job, for the bill."""
    resources: Annotated[dict[str, ResourcesConfig], AfterValidator(_nodes)] = Field(default_factory=dict)
    """Node → what its container asks for, such as Trainer: {cpu: 8, memory_gb: 32}."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+$")] | None = None
    """Another address of the API for `--submit`, such as that of a Private Service Connect endpoint."""


_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_CRON_FIELDS = 5


class ScheduleConfig(Section):
    """When the pipeline runs; two runs of one pipeline never go on at once."""

    every: str = "@daily"
    """A cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    start: date
    """The first day, in UTC."""
    catch_up: bool = False
    """Whether days between `start` and now that nobody has run are run, oldest first."""
    span: Literal["newest", "date"] = "newest"
    """What a run takes. newest: the newest span there is. date: that of the run's own day, as days since 1970, so that
    a run over the past takes the data of then."""
    only_if: Literal["every", "new_span", "drift"] = "every"
    """every: each time. new_span: only if the data has a newer span than the last run that judged a model. drift: only
    if moreover a column has moved by `drift` since that run."""
    drift: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The distance that a column may move before a model is trained anew, as `diff-data` measures it (0: alike, 1:
    nothing in common). See first how far two ordinary spans lie apart."""
    retries: NonNegativeInt = 2
    """How often a node that has failed is tried again."""
    retry_minutes: NonNegativeFloat = 5.0
    """The pause before that."""
    timeout_hours: PositiveFloat = 24.0
    """A node that takes longer is ended, and has failed."""
    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Airflow's pool that the nodes take their slots from."""
    owner: Annotated[str, StringConstraints(min_length=1)] = Field(default="airflow")
    """Whom Airflow names as the owner of the tasks."""

    @property
    def cron(self) -> str:
        """`every` as five fields of cron, for services that know no such names as @daily."""
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
            raise ValueError("only_if: drift looks at the newest span; expected span: newest, received span: date")
        return self


BY_HAND = ScheduleConfig.model_validate({"start": "2020-01-01"})
"""What holds without a section, when somebody starts the runs: retries and the like as the section would have them."""


def _pinned(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@sha256:" not in name and name.rpartition(":")[2] in ("", name, "latest"):
        raise ValueError(
            f"expected an image with a tag or a digest, since a run must be the same tomorrow; received {image!r}"
        )
    return image


Image = Annotated[str, StringConstraints(min_length=1), AfterValidator(_pinned)]
"""An image, named so that it stays the same."""
