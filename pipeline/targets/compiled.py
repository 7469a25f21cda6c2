"""Compiles a config once, into a file that all processes of an orchestrated run read."""

from __future__ import annotations

from pathlib import Path

from components.errors import InputError
from pipeline.config import Config
from pipeline.graph import GraphNode


def graph(config: Config) -> tuple[GraphNode, ...]:
    """The nodes of a config's pipeline, each after those it waits for."""
    return _compile(config)[1]


def write(config: Config, file: Path) -> tuple[GraphNode, ...]:
    """Writes the compiled pipeline, whole or not at all.

    Returns:
      Its nodes, each after those it waits for.

    Raises:
      InputError: the file cannot be written.
    """
    ir, made_of = _compile(config)
    beside = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(ir)
        beside.replace(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return made_of


def in_child(config: Config, force_bless: str | None = None) -> bytes:
    """The compiled pipeline; called in a child of the nodes' server, which has imported TFX already."""
    from pipeline.build import compile_pipeline

    return compile_pipeline(config, force_bless)


def _compile(config: Config) -> tuple[bytes, tuple[GraphNode, ...]]:
    # Imported late, when whoever calls has said what has to stand in TensorFlow's environment.
    from pipeline import nodes
    from pipeline.build import compile_pipeline

    ir = compile_pipeline(config)
    return ir, nodes.graph(ir)
