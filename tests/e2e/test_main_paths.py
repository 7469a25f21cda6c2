"""One complete run per main path: rows to a pushed model with each kind of cluster, a rejected model, a refused input,
and predictions of the pushed model. `make test` runs these; the other whole runs are in `make test-rest`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from pyarrow import parquet

from tests.support.data import people
from tests.support.data.tolerances import float32_sum
from tests.support.fakes.expected_rpc_errors import assert_undisturbed
from tests.support.runs.command import Ended, Runs, command, first_run, light_command

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines, pytest.mark.xdist_group("main_paths")]

STEPS = 60


def run_with(folder: Path, name: str, strategy: dict[str, Any], check: str) -> Runs:
    """Run the pipeline on the table of people, 500 rows of CSV.

    Args:
      folder: For the table, the config and the outputs.
      name: Name of the pipeline.
      strategy: Section `training.strategy`.
      check: Kind of the serving check.
    """
    training = {**people.CONFIG["training"], "steps": STEPS, "strategy": strategy}
    config = people.project(folder, name, training=training, serving={"check": check})
    return first_run(folder, name, "--config", str(config))


@pytest.fixture(scope="module")
def in_step(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a run with MultiWorkerMirroredStrategy."""
    strategy = {"kind": "multi_worker", "workers": 2}
    return run_with(tmp_path_factory.mktemp("in_step"), "in_step", strategy, "none")


@pytest.fixture(scope="module")
def with_servers(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a run with ParameterServerStrategy."""
    strategy = {"kind": "parameter_server", "workers": 2, "ps": 1}
    return run_with(tmp_path_factory.mktemp("with_servers"), "with_servers", strategy, "server")


def assert_pushed(runs: Runs, tasks: set[str]) -> None:
    ended = runs.first
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    assert (result["state"], result["verdict"], result["error"]) == ("done", "blessed", None)
    assert result["rows_read"] == 500 == sum(result["rows"].values())
    assert result["rows_evaluated"] == result["rows"]["eval"]
    assert result["metrics"]["auc"] > 0.8
    assert runs.pushed == [Path(result["pushed"]).name]
    assert {log.stem for log in runs.model_run.glob("logs/*.log")} == tasks
    assert_undisturbed(result["training"], STEPS, runs.model_run / "logs")


def test_workers_in_step_train_the_pushed_model(in_step: Runs):
    assert_pushed(in_step, {"worker-0", "worker-1"})


def test_parameter_servers_train_the_pushed_model(with_servers: Runs):
    assert_pushed(with_servers, {"chief-0", "worker-0", "worker-1", "ps-0"})


def test_model_below_its_threshold_is_rejected(in_step: Runs):
    ended: Ended = in_step.again("--set", "evaluation.thresholds={auc: {min: 0.9999}}")
    result = ended.result
    assert (ended.exit_code, result["state"], result["verdict"]) == (3, "rejected", "not blessed")
    # The cached model is judged again, and the pushed versions stay as they were.
    assert ended.states["Trainer"] == "cached"
    assert result["pushed"] is None
    assert in_step.pushed == [Path(in_step.first.result["pushed"]).name]


def test_input_without_the_label_is_refused(tmp_path: Path):
    table = [{name: value for name, value in row.items() if name != "income"} for row in people.rows(20)]
    config = people.write_config(tmp_path / "people.yaml", people.write(tmp_path / "people.csv", table))
    ended = light_command("--local", "--config", str(config), "--output", str(tmp_path / "out"))
    assert ended.exit_code == 2
    assert ended.err.startswith("error: ")
    assert "income" in ended.err
    assert "  remedy: " in ended.err
    assert not (tmp_path / "out").exists()


def test_pushed_model_predicts_new_rows(in_step: Runs, tmp_path: Path):
    rows = people.write_new(tmp_path / "new.csv")
    pushed = in_step.first.result["pushed"]
    arguments = ("--model", f"in_step@{Path(pushed).name}", "--data", str(rows), "--columns", "id")
    models = ("--models", str(in_step.output / "pushed"))
    ended = command("predict", *in_step.config, *models, *arguments, "--into", str(tmp_path / "out"), "--json")
    assert ended.exit_code == 0, ended.err
    assert (ended.result["rows"], ended.result["predicted"]) == (300, 300)
    table = parquet.read_table(tmp_path / "out")
    assert table.column("id").to_pylist() == [f"{number:04}" for number in range(300)]
    # The network adds 6 inputs, then 8 hidden units; its logits are below 10.
    float32_sum(6 + 8, largest=10.0).assert_close(table.column("probability"), predict_probabilities(pushed, rows))


def predict_probabilities(model: str, rows: Path) -> np.ndarray:
    """Return what the signature for columns predicts, called by TensorFlow alone."""
    table = pd.read_csv(rows, sep=";", dtype={"city": str}, keep_default_na=False, na_values={"age": ["NA"]})
    raw = tf.saved_model.load(model).signatures["raw"]
    ages, hours = tf.constant(table["age"], tf.float32), tf.constant(table["hours"], tf.int64)
    # NaN and the empty string are missing values.
    answer = raw(age=ages, hours=hours, city=tf.constant(table["city"]))
    return answer["probability"].numpy()[:, 0]
