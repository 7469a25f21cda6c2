"""The engines that Beam runs on, with their Beam options, descriptions and requirements."""

from __future__ import annotations

from typing import Any, get_args

from pipeline.authoring.config.runtime import Columnar, RuntimeConfig
from pipeline.core.addons import ENGINES
from pipeline.orchestration.engines import direct
from pipeline.orchestration.engines.base import Engine
from pipeline.orchestration.engines.direct import FORKED

__all__ = ["FORKED", "addresses", "beam_args", "check", "describe", "jar", "reads_this_disk", "worker_args"]

_NO_PACKAGE = "--sdk_container_image=none"
"""Unless an image is named, TFX builds a source package for remote workers. These workers already have the code."""
_REPEATABLE = ("--experiments", "--labels", "--dataflow_service_options")
"""Options that may occur several times, so that the user's options are added instead of overriding the engine's."""


def beam_args(runtime: RuntimeConfig) -> list[str]:
    """Return Beam's options for the engine of the config. The user's options come last and override the others."""
    return [*_list_engine_options(runtime), *runtime.beam_args]


def worker_args(runtime: RuntimeConfig, size: int) -> list[str]:
    """Return additional Beam options for columnar nodes: with the direct engine, a number of forked workers.

    The number is proportional to the size of the input. Forking a worker from the node's process takes milliseconds,
    while Beam's own workers would import TensorFlow and TFX first.

    Args:
      runtime: Section of the config. If its `beam_args` set a runner or a number of workers, they are not changed.
      size: Size of the pipeline's input in bytes.
    """
    return direct.get_fork_options(_count_forked_workers(runtime, size))


def describe(runtime: RuntimeConfig, size: int) -> list[str]:
    """Describe the engine for the start of a run: mode, number of forked workers and overridden options.

    Args:
      runtime: Section of the config.
      size: Size of the pipeline's input in bytes; 0 if the input is not on this machine.

    Returns:
      Lines of text.
    """
    lines = [f"Beam: {runtime.engine}, {_get_engine(runtime).describe(_get_section(runtime))}"]
    workers = _count_forked_workers(runtime, size)
    if workers > 1:
        by_size = f", for {size / 2**20:,.0f} MiB of input" if runtime.direct.mode == "auto" else ""
        *names, last_name = ["ExampleGen", *(name for name in get_args(Columnar) if runtime.is_vectorised(name))]
        nodes = f"{', '.join(names)} and {last_name}" if names else last_name
        lines.append(f"Beam: {nodes} in {workers} forked workers{by_size}")
    return lines + [
        f"Beam: {user_options} of runtime.beam_args instead of {option}"
        for option, user_options in _find_conflicts(runtime)
    ]


def addresses(runtime: RuntimeConfig) -> tuple[str, ...]:
    """Return each host:port that must accept connections before a run starts."""
    return _get_engine(runtime).addresses(_get_section(runtime))


def reads_this_disk(runtime: RuntimeConfig) -> bool:
    """Return whether the engine's workers see the folders of this machine."""
    return _get_engine(runtime).reads_this_disk(_get_section(runtime))


def check(runtime: RuntimeConfig) -> None:
    """Run the checks that are specific to the engine, see `Engine.check`."""
    _get_engine(runtime).check(_get_section(runtime))


def jar(runtime: RuntimeConfig) -> str | None:
    """Return the path of the jar from which the nodes start a job server; None if they do not start one."""
    return _get_engine(runtime).jar(_get_section(runtime))


def _get_engine(runtime: RuntimeConfig) -> Engine[Any]:
    engine: Engine[Any] = ENGINES[runtime.engine]()
    return engine


def _get_section(runtime: RuntimeConfig) -> Any:
    if runtime.engine in ENGINES.built_in:
        return getattr(runtime, runtime.engine)
    return _get_engine(runtime).section_type.model_validate(runtime.engine_options)


def _list_engine_options(runtime: RuntimeConfig) -> list[str]:
    options = _get_engine(runtime).options(_get_section(runtime))
    return options if any(option.startswith("--sdk_container_image") for option in options) else [*options, _NO_PACKAGE]


def _count_forked_workers(runtime: RuntimeConfig, size: int) -> int:
    is_set = any(option.startswith(("--runner", "--direct_")) for option in runtime.beam_args)
    return 1 if is_set or runtime.engine != "direct" else direct.count_forked_workers(runtime.direct, size)


def _find_conflicts(runtime: RuntimeConfig) -> list[tuple[str, str]]:
    """Return pairs of an option of the engine and the user's option that overrides it."""
    user_options = {option.partition("=")[0]: option for option in runtime.beam_args}
    return [
        (option, user_options[name])
        for option in _list_engine_options(runtime)
        if (name := option.partition("=")[0]) in user_options
        and name not in _REPEATABLE
        and user_options[name] != option
    ]
