"""The `vertex` section: where Vertex AI Pipelines runs the nodes, as whom, and on what machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from components.names import did_you_mean
from components.section import Section
from pipeline.config.engines import Bucket, Labels
from pipeline.config.image import Image
from pipeline.graph import NODES

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
