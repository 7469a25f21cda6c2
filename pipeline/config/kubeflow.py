"""The `kubeflow` section: what the pipeline's containers are on Kubeflow Pipelines."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, StringConstraints

from components.names import did_you_mean
from components.section import Section
from pipeline.config.image import Image
from pipeline.graph import NODES

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
