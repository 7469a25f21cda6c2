"""Tests for the export to MLflow. MLflow's client writes the runs to a file store and reads them again."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.data.tolerances import rounding
from tests.support.programs import programs
from tests.support.runs.command import ROOT, Ended, call, light_command
from tests.support.runs.stored_history import History

READER = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
[experiment] = [each for each in client.search_experiments() if each.name == "toy"]
runs = []
for run in client.search_runs([experiment.experiment_id]):
    curve = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "train/loss")]
    times = (run.info.start_time, run.info.end_time)
    runs.append([run.info.run_name, run.info.status, run.data.params, run.data.metrics, run.data.tags, curve, times])
print(json.dumps(runs))
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """Return environment variables that make MLflow importable, as if its extra were installed."""
    return {"PYTHONPATH": str(Path(programs.find("mlflow")).parents[1]), "MLFLOW_ALLOW_FILE_STORE": "true"}


def export(history: History, to: Path, environment: dict[str, str]) -> Ended:
    options = ("--store", str(history.location), "--format", "mlflow", "--into", str(to))
    variables = {name: value for name, value in environment.items() if name == "PYTHONPATH"}
    return call([sys.executable, "runner.py", "store", "export", *options], variables)


def read_runs(to: Path, environment: dict[str, str]) -> dict[str, list[Any]]:
    process = call([sys.executable, "-c", READER, to.as_uri()], environment)
    assert process.exit_code == 0, process.err
    return {run[0]: run[1:] for run in json.loads(process.out.splitlines()[-1])}


@pytest.mark.needs("mlflow")
def test_every_run_is_written_once(history: History, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "model_run"
    with tf.summary.create_file_writer(str(folder / "train")).as_default():
        for step, loss in ((10, 0.7), (20, 0.5)):
            tf.summary.scalar("loss", loss, step=step)
    run = history.writer.artifact("ModelRun", str(folder))
    history.writer.execution("r3", "Cluster", "COMPLETE", [run])
    history.write_record("r2", pipeline="toy", state="failed", started=1700000000.0, updated=1700000060.5)
    history.write_record("r1", pipeline="toy", state="failed", started=1700000000.0, updated=1700000060.0)
    history.writer.execution("stock", "Trainer")
    history.write_record("r4", pipeline="toy", state="running", started=1700000000.0, updated=1700000001.0)
    to = tmp_path / "mlruns"

    first = export(history, to, environment)
    assert (first.exit_code, first.out) == (0, f"{to}: 4 runs written, 0 were there\n"), first.err
    # The run was resumed and has succeeded.
    history.write_record("r2", pipeline="toy", state="done", started=1700000000.0, updated=1700000090.0)
    again = export(history, to, environment)
    assert (again.exit_code, again.out) == (0, f"{to}: 1 runs written, 3 were there\n"), again.err
    runs = read_runs(to, environment)
    assert sorted(runs) == ["r1", "r2", "r3", "stock"]
    status, parameters, metrics, tags, curve, _ = runs["r3"]
    assert (status, parameters) == ("FINISHED", {"training.learning_rate": "0.2"})
    assert metrics["rows.train"] == 9
    assert metrics["train/loss"] == rounding(1).approx(0.5)
    assert curve == [[10, rounding(1).approx(0.7)], [20, 0.5]]
    assert (tags["run"], tags["pipeline"], tags["verdict"], tags["spans"]) == ("r3", "toy", "not blessed", "3")
    status, _, metrics, tags, _, times = runs["r2"]
    assert (status, tags["state"], metrics["seconds"]) == ("FINISHED", "done", 90)
    assert times == [1700000000000, 1700000090000]
    assert (runs["r1"][0], runs["r1"][3]["state"]) == ("FAILED", "failed")


@pytest.mark.needs("mlflow")
def test_server_that_does_not_answer_is_an_error(
    history: History, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    options = ("--store", str(history.location), "--format", "mlflow", "--into", "http://127.0.0.1:9")
    process = call([sys.executable, "runner.py", "store", "export", *options], environment)
    assert process.exit_code == 1
    assert process.err.startswith("error: --into: MLflow refuses: API request to http://127.0.0.1:9")


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is not None, reason="mlflow is installed")
def test_missing_package_is_named_in_the_error(history: History) -> None:
    process = light_command(
        "store", "export", "--store", str(history.location), "--format", "mlflow", "--into", "mlruns"
    )
    assert process.exit_code == 2
    assert "expected the package mlflow-skinny, which is not installed" in process.err
    assert (ROOT / "requirements-mlflow.txt").is_file()


def test_destination_is_required(history: History) -> None:
    process = light_command("store", "export", "--store", str(history.location), "--format", "mlflow")
    assert (process.exit_code, "expected --into, received none" in process.err) == (2, True)
