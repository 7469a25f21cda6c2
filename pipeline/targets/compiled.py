"""Compiles a config once, into a file that all processes of an orchestrated run read."""

from __future__ import annotations

import os
from pathlib import Path

from components.errors import InputError
from pipeline import preflight
from pipeline.config import Loaded
from pipeline.graph import GraphNode
from pipeline.targets.environment import ENVIRONMENT


def write(loaded: Loaded, file: Path) -> tuple[GraphNode, ...]:
    """Writes the compiled pipeline, whole or not at all.

    Returns:
      Its nodes, each after those it waits for.

    Raises:
      InputError: the config or the data does not fit, or the file cannot be written.
      MachineError: the metadata store does not open.
    """
    preflight.check(loaded)
    # Before TensorFlow's first import, which is here rather than at the top: a config that does not fit is told at once.
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from pipeline.build import compile_pipeline
    from pipeline.nodes import graph

    ir = compile_pipeline(loaded.config)
    beside = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(ir)
        beside.replace(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return graph(ir)
