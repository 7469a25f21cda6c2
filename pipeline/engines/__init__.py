"""The engines that Beam runs on: the Beam options of each, what a run says of it, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.config.runtime import RuntimeConfig
from pipeline.engines import direct
from pipeline.engines.dataflow import Dataflow
from pipeline.engines.direct import FORKED, Direct
from pipeline.engines.engine import Engine
from pipeline.engines.job_server import Flink, Spark
from pipeline.engines.portable import Portable

__all__ = ["FORKED", "addresses", "beam_args", "ingest_args", "jar", "reads_this_disk", "told"]

_ENGINES: Mapping[str, Engine[Any]] = {
    "direct": Direct(),
    "dataflow": Dataflow(),
    "flink": Flink(),
    "spark": Spark(),
    "portable": Portable(),
}
_NO_PACKAGE = "--sdk_container_image=none"
"""TFX builds a source package for remote workers unless an image is named; these workers have the code already."""
_ADDED_UP = ("--experiments", "--labels", "--dataflow_service_options")
"""Options of which Beam takes as many as there are."""


def beam_args(runtime: RuntimeConfig) -> list[str]:
    """Beam's options for the engine of the config; the user's own come last, and win."""
    return [*_engines_own(runtime), *runtime.beam_args]


def ingest_args(runtime: RuntimeConfig, size: int) -> list[str]:
    """Beam's options for ExampleGen alone: on this machine as many forked workers as its input is worth.

    They are forked from its process, which costs next to nothing; Beam's own workers would import everything first.

    Args:
      runtime: how the nodes run; a runner or workers that the user asks for are left as they are.
      size: of the input, in bytes.
    """
    return direct.ingest_options(_ingest_workers(runtime, size))


def told(runtime: RuntimeConfig, size: int) -> list[str]:
    """What a run says before it begins: the engine, its mode, what was chosen by size, and what the user overrides.

    Args:
      runtime: how the nodes run.
      size: of ExampleGen's input, in bytes; 0 if it is not on this machine.
    """
    lines = [f"Beam: {runtime.engine}, {_of(runtime).told(_section(runtime))}"]
    workers = _ingest_workers(runtime, size)
    if workers > 1:
        by_size = f", for {size / 2**20:,.0f} MiB of input" if runtime.direct.mode == "auto" else ""
        lines.append(f"Beam: ExampleGen in {workers} forked workers{by_size}")
    return lines + [f"Beam: {theirs} of runtime.beam_args instead of {ours}" for ours, theirs in _conflicts(runtime)]


def addresses(runtime: RuntimeConfig) -> tuple[str, ...]:
    """Each host:port that has to answer before a run begins."""
    return _of(runtime).addresses(_section(runtime))


def reads_this_disk(runtime: RuntimeConfig) -> bool:
    """Whether the engine's workers see the folders of this machine."""
    return _of(runtime).reads_this_disk(_section(runtime))


def jar(runtime: RuntimeConfig) -> str | None:
    """The jar that the engine's job server is started from, if it is."""
    return _of(runtime).jar(_section(runtime))


def _of(runtime: RuntimeConfig) -> Engine[Any]:
    return _ENGINES[runtime.engine]


def _section(runtime: RuntimeConfig) -> Any:
    return getattr(runtime, runtime.engine)


def _engines_own(runtime: RuntimeConfig) -> list[str]:
    options = _of(runtime).options(_section(runtime))
    return options if any(option.startswith("--sdk_container_image") for option in options) else [*options, _NO_PACKAGE]


def _ingest_workers(runtime: RuntimeConfig, size: int) -> int:
    asked = any(option.startswith(("--runner", "--direct_")) for option in runtime.beam_args)
    return 1 if asked or runtime.engine != "direct" else direct.ingest_workers(runtime.direct, size)


def _conflicts(runtime: RuntimeConfig) -> list[tuple[str, str]]:
    """Options of the engine, each with the user's that takes its place."""
    theirs = {option.partition("=")[0]: option for option in runtime.beam_args}
    return [
        (ours, theirs[name])
        for ours in _engines_own(runtime)
        if (name := ours.partition("=")[0]) in theirs and name not in _ADDED_UP and theirs[name] != ours
    ]
