"""A forest, alone or together with a network under every strategy, is exported like every other model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import MachineError
from components.models.config import ModelConfig
from tests.support.programs import training_output
from tests.support.runs.trainer_runs import Prepared, Training

MODELS: dict[str, dict[str, Any]] = {
    # All fields, so that defaults replace the network's fields of the prepared config.
    "gbt": ModelConfig(kind="gbt", trees=60, depth=4).model_dump(),
    "gbt_linear": ModelConfig(kind="gbt_linear", trees=60, depth=4).model_dump(),
    "ensemble": {"kind": "ensemble", "trees": 60, "depth": 4, "hidden": (16,), "members": 4},
}
CONFIG = {"steps": 100, "batch_size": 256, "learning_rate": 0.01, "checkpoint": {"every_steps": 50}}
WORKERS = {"kind": "multi_worker", "workers": 2}
SERVERS = {"kind": "parameter_server", "workers": 2, "ps": 2}
MESH = {"kind": "mesh", "data": 2, "model": 2}


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        pytest.param("gbt", {}, id="gbt", marks=pytest.mark.extended),
        pytest.param("gbt_linear", {}, id="gbt_linear", marks=pytest.mark.extended),
        # On the other release line this model contains a forest, too.
        pytest.param("ensemble", WORKERS, id="multi_worker", marks=[pytest.mark.both_lines, pytest.mark.slow]),
        pytest.param("ensemble", {"kind": "mirrored"}, id="mirrored", marks=pytest.mark.slow),
        pytest.param("ensemble", MESH, id="mesh", marks=pytest.mark.slow),
        pytest.param("ensemble", SERVERS, id="parameter_server", marks=pytest.mark.slow),
    ],
)
def test_exported_forest_predicts(prepared: Prepared, kind: str, strategy: dict[str, Any], tmp_path: Path) -> None:
    # On a cluster and on a mesh, every fold has a network and a forest.
    folds = 2 if strategy in (WORKERS, SERVERS, MESH) else None
    Training(prepared, tmp_path, {**CONFIG, "strategy": strategy, "folds": folds}, model=MODELS[kind]).end()
    auc, variables = training_output.measure_served(prepared, tmp_path)
    assert auc > 0.95
    # The rows of the tables, the scales of the members and the matrices of tabm; arrays of the forest in both.
    assert variables > (10 if kind == "ensemble" else 5)
    log = (tmp_path / "node.log").read_text() + "".join(path.read_text() for path in tmp_path.glob("run/logs/*.log"))
    assert re.search(r"\d+ trees of depth 4, \w+: loss 0\.\d+ on the validation part", log)
    assert ("mean with the weights" in log) == (kind != "gbt")
    # The same rows choose and calibrate the model, so the loss before calibration is the loss that chose it.
    of_mean = re.findall(r"mean with the weights .*: (0\.\d+)", log)
    before = of_mean[-1] if of_mean else min(re.findall(r"trees of depth .*: loss (0\.\d+)", log))
    after, uncalibrated = map(float, re.findall(r"temperature \S+: loss (\S+) instead of (\S+)", log)[-1])
    assert after <= uncalibrated == float(before)


@pytest.mark.slow
def test_sigterm_ends_the_training_of_trees_at_once(prepared: Prepared, tmp_path: Path) -> None:
    endless = {**MODELS["ensemble"], "trees": 100_000, "shrinkage": 1e-6}
    training = Training(prepared, tmp_path, {**CONFIG, "strategy": {}}, model=endless)
    training.until(lambda: training.log.exists() and "training trees on" in training.log.read_text())
    training.supervisor.terminate()
    with pytest.raises(MachineError, match="Trainer was killed by SIGTERM"):
        training.end()
    assert not list((tmp_path / "model").iterdir())
