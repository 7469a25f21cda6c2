"""User-defined nodes are part of the pipelines that are written for every orchestrator."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.data import people
from tests.support.runs.command import command

SERVER = {"backend": "postgresql", "host": "db", "database": "metadata", "user": "tfx"}
VERTEX = {"project": "p", "region": "europe-west4", "image": "an/image:1", "root": "gs://bucket/people"}
KUBEFLOW = {"image": "an/image:1", "claim": "c", "resources": {"Measure": {"cpu": 1}}}
NODES: list[dict[str, Any]] = [
    {"component": "tests.support.data.own_components.Measure", "inputs": {"statistics": "StatisticsGen.statistics"}},
    {
        "component": "tests.support.data.own_components.check_size",
        "id": "CheckSize",
        "inputs": {"size": "Measure.size", "text": "Measure.text"},
        "before": "Pusher",
    },
]


def airflow(folder: Path) -> dict[str, Collection[str]]:
    manifest = json.loads((folder / "dags" / "people" / "manifest.json").read_text())
    return {node["id"]: node["upstream"] for node in manifest["nodes"]}


def kubeflow(folder: Path) -> dict[str, Collection[str]]:
    spec, _ = yaml.safe_load_all((folder / "pipeline.yaml").read_text())
    containers = spec["deploymentSpec"]["executors"]
    assert containers["exec-measure"]["container"]["resources"] == {"cpuLimit": 1.0}
    names = {"measure": "Measure", "check-size": "CheckSize", "statistics-gen": "StatisticsGen", "pusher": "Pusher"}
    tasks = spec["root"]["dag"]["tasks"]
    return {
        name: [names.get(upstream, upstream) for upstream in tasks[task].get("dependentTasks", ())]
        for task, name in names.items()
    }


def vertex(folder: Path) -> dict[str, Collection[str]]:
    spec = yaml.safe_load((folder / "pipeline.yaml").read_text())
    executor = spec["deploymentSpec"]["executors"]["Measure_executor"]["container"]
    assert "tests.support.data.own_components.Measure_Executor" in executor["args"]
    return {name: task.get("dependentTasks", ()) for name, task in spec["root"]["dag"]["tasks"].items()}


@pytest.mark.parametrize(
    ("orchestrator", "output", "read"),
    [("airflow", "dags", airflow), ("kubeflow", "pipeline.yaml", kubeflow), ("vertex", "pipeline.yaml", vertex)],
)
def test_orchestrator_gets_own_nodes(
    tmp_path: Path, orchestrator: str, output: str, read: Callable[[Path], dict[str, Collection[str]]]
) -> None:
    sections = {"kubeflow": {"metadata": SERVER, "kubeflow": KUBEFLOW}, "vertex": {"vertex": VERTEX}}
    config = people.project(tmp_path, nodes=NODES, **sections.get(orchestrator, {}))
    sets = ("--set", f"runtime.output={tmp_path / 'out'}")
    ended = command(f"--{orchestrator}", "--config", str(config), *sets, "--output", str(tmp_path / output))
    assert (ended.exit_code, ended.err) == (0, "")
    upstream = read(tmp_path)
    assert list(upstream["Measure"]) == ["StatisticsGen"]
    assert list(upstream["CheckSize"]) == ["Measure"]
    assert "CheckSize" in upstream["Pusher"]
