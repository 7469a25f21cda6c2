"""Compiles a config once, into a file that all processes of an orchestrated run read."""

from __future__ import annotations

from pathlib import Path

from components.errors import InputError
from pipeline.config import Config
from pipeline.graph import GraphNode


def write(config: Config, file: Path) -> tuple[GraphNode, ...]:
    """Writes the compiled pipeline, whole or not at all.

    Returns:
      Its nodes, each after those it waits for.

    Raises:
      InputError: the file cannot be written.
    """
    # Imported late, when whoever calls has said what has to stand in TensorFlow's environment.
    from pipeline.build import compile_pipeline
    from pipeline.nodes import graph

    ir = compile_pipeline(config)
    beside = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(ir)
        beside.replace(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return graph(ir)
