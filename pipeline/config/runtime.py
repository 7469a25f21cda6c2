"""The `pipeline` and `runtime` sections: the pipeline's name, and how and where its nodes run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PositiveInt, StringConstraints

from components.section import Section


class PipelineConfig(Section):
    """Who this pipeline is."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)]
    """Names the output folder and, in ML Metadata, everything of this pipeline: small letters, digits, - and _."""


class RuntimeConfig(Section):
    """How and where the nodes run; nothing in here changes what they compute."""

    output: str = "out"
    """Folder for everything that runs make; this pipeline's lies in <output>/<name>."""
    engine: Literal["direct"] = "direct"
    """The engine that Beam runs on. direct: on this machine, inside the node's process."""
    beam_args: tuple[str, ...] = ()
    """Further options for Beam, such as --direct_num_workers=2."""
    parallel_nodes: PositiveInt | None = None
    """Nodes that may run side by side; without a number, one per core."""
    cache: bool = True
    """Whether a node whose inputs and parameters are unchanged takes its earlier outputs."""
