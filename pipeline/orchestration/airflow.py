"""Write a DAG for Airflow: the DAG file, which does not import TFX, with the compiled pipeline and a manifest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.base.errors import InputError
from components.base.files import write_atomically
from pipeline.authoring.config import Config
from pipeline.authoring.config.airflow import AirflowConfig, DataWaitConfig
from pipeline.authoring.config.orchestrators import BY_HAND, ScheduleConfig
from pipeline.core.records import GraphNode
from pipeline.orchestration import compiler
from pipeline.orchestration.root_folder import without_root

_CODE = Path(__file__).parents[2]
_DAG = _CODE / "deploy" / "airflow" / "dag.py"
_ENVIRONMENT = ("PYTHONPATH",)
"""Environment variables that tasks inherit, so that they find the user's modules. Passwords are not inherited."""


@dataclass(frozen=True)
class Dag:
    """The parameters of a DAG.

    Args:
      pipeline: Name of the pipeline and of the DAG.
      graph: Nodes of the pipeline.
      config: Options of `runner.py` that run the same pipeline.
      logs: Folder that contains one folder per run.
      schedule: When the DAG runs. If None, it runs only when it is triggered.
      airflow: What else starts runs, callbacks, and the settings of the tasks.
      waited_patterns: Absolute file patterns with {SPAN} or a date; a run waits until its span has such files.
      approves: Whether a person approves the push in Airflow.
    """

    pipeline: str
    graph: tuple[GraphNode, ...]
    config: Sequence[str]
    logs: Path
    schedule: ScheduleConfig | None
    airflow: AirflowConfig = field(default_factory=AirflowConfig)
    waited_patterns: Sequence[str] = ()
    approves: bool = False


def write(config: Config, options: Sequence[str], folder: Path) -> Path:
    """Write `<pipeline>.py` and `<pipeline>/` into a folder of DAGs; earlier files of this pipeline are replaced.

    Args:
      config: Config of the pipeline.
      options: Options of `runner.py` that run the pipeline.
      folder: Airflow's folder of DAGs.

    Returns:
      Path of the DAG file.

    Raises:
      InputError: The folder cannot be written.
    """
    graph = compiler.write(config, pipeline_file(folder, config.pipeline.name), Path.cwd())
    section = config.airflow or AirflowConfig()
    dag = Dag(
        config.pipeline.name,
        graph,
        options,
        config.paths().logs,
        config.schedule,
        section,
        section.get_waited_patterns(config),
        approves=config.push.approval == "required",
    )
    return write_dag(dag, folder)


def pipeline_file(folder: Path, pipeline: str) -> Path:
    """Return the path of a DAG's compiled pipeline."""
    return folder.absolute() / pipeline / "pipeline.pb"


def write_dag(dag: Dag, folder: Path) -> Path:
    """Write the DAG file, and the manifest next to an existing compiled pipeline.

    The working directory becomes the root folder of the DAG.

    Args:
      dag: Parameters of the DAG.
      folder: Airflow's folder of DAGs.

    Returns:
      Path of the DAG file.

    Raises:
      InputError: The folder cannot be written.
    """
    schedule = (dag.schedule or BY_HAND).model_dump(mode="json")
    if dag.schedule is None:
        schedule["every"] = None
    manifest = {
        "pipeline": dag.pipeline,
        "python": sys.executable,
        "runner": str(_CODE / "runner.py"),
        "config": list(dag.config),
        "logs": str(dag.logs),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)},
        "nodes": [{"id": node.id, "upstream": list(node.upstream)} for node in dag.graph],
        "schedule": schedule,
        "airflow": _make_airflow_settings(dag),
        "approval": dag.approves,
    }
    here = Path.cwd()
    manifest = {"root": str(here), **without_root(manifest, here)}
    file = folder / f"{dag.pipeline}.py"
    try:
        write_atomically(
            pipeline_file(folder, dag.pipeline).with_name("manifest.json"), json.dumps(manifest, indent=2) + "\n"
        )
        # Written last, because Airflow reads the DAG file as soon as it exists.
        write_atomically(file, _DAG.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another folder with --output") from error
    return file


def _make_airflow_settings(dag: Dag) -> dict[str, Any]:
    settings = dag.airflow.model_dump(mode="json", exclude={"wait_for_data"})
    wait = dag.airflow.wait_for_data or DataWaitConfig()
    return {
        **settings,
        "asset": dag.airflow.get_asset(dag.pipeline),
        "wait": {**wait.model_dump(include={"hours", "every_seconds"}), "patterns": list(dag.waited_patterns)},
    }
