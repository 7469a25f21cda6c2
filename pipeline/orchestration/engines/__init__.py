"""The engines that Beam runs on: the Beam options of each, its description, and what it requires."""

from __future__ import annotations

from typing import Any, get_args

from pipeline.authoring.config.runtime import Columnar, RuntimeConfig
from pipeline.core.addons import ENGINES
from pipeline.orchestration.engines import direct
from pipeline.orchestration.engines.base import Engine
from pipeline.orchestration.engines.direct import FORKED

__all__ = ["FORKED", "addresses", "beam_args", "check", "describe", "jar", "reads_this_disk", "worker_args"]

_NO_PACKAGE = "--sdk_container_image=none"
"""TFX builds a source package for remote workers unless an image is named; these workers have the code already."""
_ADDED_UP = ("--experiments", "--labels", "--dataflow_service_options")
"""Options of which Beam takes as many as there are."""


def beam_args(runtime: RuntimeConfig) -> list[str]:
    """Beam's options for the engine of the config; the user's own come last, and override them."""
    return [*_engine_options(runtime), *runtime.beam_args]


def worker_args(runtime: RuntimeConfig, size: int) -> list[str]:
    """Beam's options for columnar nodes alone: on this machine, forked workers in proportion to the input's size.

    They are forked from the node's process in milliseconds; Beam's own workers would import TensorFlow and TFX first.

    Args:
      runtime: how the nodes run; a runner or a number of workers in `beam_args` is not changed.
      size: of the pipeline's input, in bytes.
    """
    return direct.forked_options(_forked_workers(runtime, size))


def describe(runtime: RuntimeConfig, size: int) -> list[str]:
    """Describe the engine at the start of a run: its mode, what was chosen by size, and which options are overridden.

    Args:
      runtime: how the nodes run.
      size: of the pipeline's input, in bytes; 0 if it is not on this machine.
    """
    lines = [f"Beam: {runtime.engine}, {_of(runtime).describe(_section(runtime))}"]
    workers = _forked_workers(runtime, size)
    if workers > 1:
        by_size = f", for {size / 2**20:,.0f} MiB of input" if runtime.direct.mode == "auto" else ""
        *others, last = ["ExampleGen", *(name for name in get_args(Columnar) if runtime.is_vectorised(name))]
        nodes = f"{', '.join(others)} and {last}" if others else last
        lines.append(f"Beam: {nodes} in {workers} forked workers{by_size}")
    return lines + [
        f"Beam: {user_options} of runtime.beam_args instead of {option}" for option, user_options in _conflicts(runtime)
    ]


def addresses(runtime: RuntimeConfig) -> tuple[str, ...]:
    """Each host:port that must accept connections before a run starts."""
    return _of(runtime).addresses(_section(runtime))


def reads_this_disk(runtime: RuntimeConfig) -> bool:
    """Whether the engine's workers see the folders of this machine."""
    return _of(runtime).reads_this_disk(_section(runtime))


def check(runtime: RuntimeConfig) -> None:
    """Check what only the engine of the config has, see `Engine.check`."""
    _of(runtime).check(_section(runtime))


def jar(runtime: RuntimeConfig) -> str | None:
    """Return the jar from which the nodes start the engine's job server; None if they do not."""
    return _of(runtime).jar(_section(runtime))


def _of(runtime: RuntimeConfig) -> Engine[Any]:
    engine: Engine[Any] = ENGINES[runtime.engine]()
    return engine


def _section(runtime: RuntimeConfig) -> Any:
    if runtime.engine in ENGINES.built_in:
        return getattr(runtime, runtime.engine)
    return _of(runtime).section_type.model_validate(runtime.engine_options)


def _engine_options(runtime: RuntimeConfig) -> list[str]:
    options = _of(runtime).options(_section(runtime))
    return options if any(option.startswith("--sdk_container_image") for option in options) else [*options, _NO_PACKAGE]


def _forked_workers(runtime: RuntimeConfig, size: int) -> int:
    is_set = any(option.startswith(("--runner", "--direct_")) for option in runtime.beam_args)
    return 1 if is_set or runtime.engine != "direct" else direct.forked_workers(runtime.direct, size)


def _conflicts(runtime: RuntimeConfig) -> list[tuple[str, str]]:
    """Pairs of an option of the engine and the user's option that overrides it."""
    user_options = {option.partition("=")[0]: option for option in runtime.beam_args}
    return [
        (option, user_options[name])
        for option in _engine_options(runtime)
        if (name := option.partition("=")[0]) in user_options and name not in _ADDED_UP and user_options[name] != option
    ]
