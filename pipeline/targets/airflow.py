"""Writes what Airflow needs: a DAG file, which imports no TFX, and beside it the compiled pipeline and a manifest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import InputError
from pipeline.config import Config
from pipeline.config.schedule import BY_HAND, ScheduleConfig
from pipeline.graph import GraphNode
from pipeline.paths import Paths
from pipeline.targets import compiled

_ROOT = Path(__file__).parents[2]
_DAG = _ROOT / "deploy" / "airflow" / "dag.py"
_HANDED_ON = ("PYTHONPATH",)
"""Variables without which the user's own modules are not found; a password is none of them."""


@dataclass(frozen=True)
class Dag:
    """What a DAG is made of.

    Args:
      pipeline: its name, and the DAG's.
      graph: the nodes.
      config: what `runner.py` takes to run the same pipeline.
      logs: the folder with a folder per run.
      schedule: when it runs; None: when somebody starts it.
    """

    pipeline: str
    graph: tuple[GraphNode, ...]
    config: Sequence[str]
    logs: Path
    schedule: ScheduleConfig | None


def write(config: Config, options: Sequence[str], folder: Path) -> Path:
    """Writes `<pipeline>.py` and `<pipeline>/` into a folder of DAGs; what is there of this pipeline is replaced.

    Args:
      config: the pipeline.
      options: what `runner.py` takes to run it.
      folder: that Airflow reads.

    Returns:
      The DAG file.

    Raises:
      InputError: the folder cannot be written.
    """
    graph = compiled.write(config, place(folder, config.pipeline.name))
    return write_dag(Dag(config.pipeline.name, graph, options, Paths.of(config).logs, config.schedule), folder)


def place(folder: Path, pipeline: str) -> Path:
    """Where a DAG expects its compiled pipeline."""
    return folder.absolute() / pipeline / "pipeline.pb"


def write_dag(dag: Dag, folder: Path) -> Path:
    """Writes all but the compiled pipeline, which has to be in its place; returns the DAG file.

    Raises:
      InputError: the folder cannot be written.
    """
    schedule = (dag.schedule or BY_HAND).model_dump(mode="json")
    if dag.schedule is None:
        schedule["every"] = None
    manifest = {
        "pipeline": dag.pipeline,
        "python": sys.executable,
        "runner": str(_ROOT / "runner.py"),
        "folder": str(Path.cwd()),
        "config": list(dag.config),
        "logs": str(dag.logs),
        "environment": {name: os.environ[name] for name in _HANDED_ON if os.environ.get(name)},
        "nodes": [{"id": node.id, "upstream": list(node.upstream)} for node in dag.graph],
        "schedule": schedule,
    }
    file = folder / f"{dag.pipeline}.py"
    try:
        _replace(place(folder, dag.pipeline).with_name("manifest.json"), json.dumps(manifest, indent=2) + "\n")
        # Last: Airflow sees it when all that it reads is there.
        _replace(file, _DAG.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another folder with --output") from error
    return file


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)
