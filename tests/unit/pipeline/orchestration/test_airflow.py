"""Tests for the files for Airflow: the manifest, and the DAG file, which does not depend on this project."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.authoring.config.airflow import AirflowConfig
from pipeline.authoring.config.orchestrators import ScheduleConfig
from pipeline.core.records import GraphNode
from pipeline.orchestration.airflow import Dag, pipeline_file, write_dag
from pipeline.orchestration.root_folder import ROOT

GRAPH = (GraphNode("ExampleGen", ()), GraphNode("Trainer", ("ExampleGen",)))


def write_manifest(folder: Path, schedule: ScheduleConfig | None = None) -> dict[str, object]:
    pipeline_file(folder, "toy").parent.mkdir(parents=True, exist_ok=True)
    assert (
        write_dag(Dag("toy", GRAPH, ("--config", "toy.yaml"), folder / "logs", schedule), folder) == folder / "toy.py"
    )
    record: dict[str, object] = json.loads((folder / "toy" / "manifest.json").read_text())
    return record


def test_manifest_describes_the_whole_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("METADATA_PASSWORD", "open sesame")
    manifest = write_manifest(
        tmp_path, ScheduleConfig.model_validate({"start": "2026-01-01", "every": "0 3 * * *", "pool": "p"})
    )
    assert manifest["nodes"] == [
        {"id": "ExampleGen", "upstream": []},
        {"id": "Trainer", "upstream": ["ExampleGen"]},
    ]
    assert (manifest["root"], manifest["logs"]) == (str(Path.cwd()), str(tmp_path / "logs"))
    assert str(manifest["python"]).replace(ROOT, str(Path.cwd())) == sys.executable
    assert manifest["environment"] == {"PYTHONPATH": "/mine"}
    schedule = manifest["schedule"]
    assert isinstance(schedule, dict)
    assert (schedule["every"], schedule["start"], schedule["pool"]) == ("0 3 * * *", "2026-01-01", "p")
    assert Path(str(manifest["runner"]).replace(ROOT, str(Path.cwd()))).is_file()


@pytest.mark.parametrize("approves", [True, False])
def test_manifest_says_whether_a_person_approves_the_push(tmp_path: Path, approves: bool):
    (tmp_path / "toy").mkdir()
    write_dag(Dag("toy", GRAPH, (), tmp_path / "logs", None, approves=approves), tmp_path)
    assert json.loads((tmp_path / "toy" / "manifest.json").read_text())["approval"] is approves


def test_paths_below_the_working_directory_are_relative_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    manifest = write_manifest(tmp_path)
    assert (manifest["root"], manifest["logs"]) == (str(tmp_path), f"{ROOT}/logs")


def test_dag_without_a_schedule_is_started_by_hand(tmp_path: Path):
    schedule = write_manifest(tmp_path)["schedule"]
    assert isinstance(schedule, dict)
    assert (schedule["every"], schedule["catch_up"], schedule["retries"]) == (None, False, 2)


def test_manifest_has_the_settings_of_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    section = {
        "run_after": ["trips/model"],
        "wait_for_data": {"hours": 2},
        "on_failure": "alerts.send",
        "tasks": {"Trainer": {"pool": "gpu", "queue": "gpu", "priority": 3}},
    }
    pipeline_file(tmp_path, "toy").parent.mkdir()
    pattern = str(tmp_path / "{SPAN}" / "done")
    write_dag(
        Dag("toy", GRAPH, (), tmp_path / "logs", None, AirflowConfig.model_validate(section), [pattern]), tmp_path
    )
    airflow = json.loads((tmp_path / "toy" / "manifest.json").read_text())["airflow"]
    assert (airflow["asset"], airflow["run_after"], airflow["run_after_rule"]) == ("toy/model", ["trips/model"], "all")
    assert airflow["wait"] == {"hours": 2.0, "every_seconds": 60.0, "patterns": [f"{ROOT}/{{SPAN}}/done"]}
    assert (airflow["on_failure"], airflow["on_success"]) == ("alerts.send", None)
    assert airflow["tasks"] == {"Trainer": {"pool": "gpu", "pool_slots": 1, "priority": 3, "queue": "gpu"}}


def test_dag_imports_only_airflow(tmp_path: Path):
    write_manifest(tmp_path)
    tree = ast.parse((tmp_path / "toy.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    packages = {str(module).partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
    assert packages == {"airflow"}


def test_folder_that_cannot_be_written_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_dag(Dag("toy", GRAPH, (), tmp_path, None), tmp_path / "file")
