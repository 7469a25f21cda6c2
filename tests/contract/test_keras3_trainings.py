"""A Keras 3 model is trained under every strategy, and its SavedModel predicts as Keras 3 does with these weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from components.base.errors import InputError, MachineError
from components.trainer import checkpoint
from tests.support.programs import keras3_output
from tests.support.runs import tuner_runs
from tests.support.runs.command import SUPPORT
from tests.support.runs.trainer_runs import Prepared, Training, train_on_devices
from tests.support.servers.in_fork_server import in_child

CODE = SUPPORT / "data" / "keras3_code.py"
MODEL = {"build": f"{CODE}:build"}
STEPS, EVERY = 60, 30
CONFIG: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 256,
    "learning_rate": 0.02,
    "checkpoint": {"every_steps": EVERY, "keep": 3},
}
TRAININGS: dict[str, dict[str, Any]] = {
    "alone": {"tensorboard": {"gradients": True, "histograms": True, "graph": True}, "calibration": "none"},
    "float16-accumulated": {"precision": "mixed_float16", "optimizer": {"accumulate": 2}},
    "bfloat16-xla": {"precision": "mixed_bfloat16", "jit_compile": True},
    "folds": {"folds": 2},
    "mirrored": {"strategy": {"kind": "mirrored"}},
    "multi_worker": {"strategy": {"kind": "multi_worker", "workers": 2}},
    "parameter_server": {"strategy": {"kind": "parameter_server", "workers": 2, "ps": 1}, "evaluator": True},
}
EXTENDED = {"alone"}


@pytest.mark.both_lines
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=getattr(pytest.mark, "extended" if name in EXTENDED else "slow")) for name in TRAININGS],
)
def test_saved_model_predicts_as_keras_does(prepared: Prepared, tmp_path: Path, name: str) -> None:
    config = {**CONFIG, **TRAININGS[name]}
    if name == "mirrored":
        in_child(tmp_path / "node.log", train_on_devices, prepared, tmp_path, config, 2, MODEL)
        assert "device:CPU:1" in (tmp_path / "node.log").read_text()
    else:
        Training(prepared, tmp_path, config, model=MODEL).end()
    served = in_child(tmp_path / "serve.log", keras3_output.serve, prepared, tmp_path)
    probabilities = served["predictions"]["serving_default"]
    assert roc_auc_score(served["label"], probabilities) > 0.9
    for signature, predictions in served["predictions"].items():
        np.testing.assert_allclose(predictions, probabilities, atol=1e-6, err_msg=signature)
    if name == "folds":
        return
    folder = str(tmp_path / "run" / "checkpoints")
    assert checkpoint.newest(folder) == STEPS
    last = checkpoint.path(folder, STEPS)
    keras = in_child(tmp_path / "keras.log", keras3_output.predict, CODE, prepared, last, served["features"])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-keras["logits"])), atol=1e-5)
    weights = keras["weights"]
    state = next(value for path, value in weights.items() if path.endswith("seed_generator_state"))
    steps = STEPS * config.get("optimizer", {}).get("accumulate", 1)
    # Independent workers may write the state at the same time.
    assert steps / 2 <= state[1] <= steps if name == "parameter_server" else state[1] == steps
    assert (weights["batch_normalization/moving_variance"] != 1).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alone", "multi_worker"])
def test_warm_start_begins_with_the_weights_of_the_earlier_model(prepared: Prepared, tmp_path: Path, name: str) -> None:
    predictions = []
    earlier, later = tmp_path / "earlier", tmp_path / "later"
    again = {"warm_start": True, "steps": 1, "learning_rate": 1e-9, **TRAININGS[name]}
    for folder, config, base in ((earlier, CONFIG, None), (later, {**CONFIG, **again}, earlier)):
        folder.mkdir()
        Training(prepared, folder, config, model=MODEL, base=base).end()
        served = in_child(folder / "serve.log", keras3_output.serve, prepared, folder)
        predictions.append(served["predictions"]["serving_default"])
    assert np.ptp(predictions[0]) > 0.5
    # One step changes moving averages by a tenth of what the mean of a batch differs.
    np.testing.assert_allclose(predictions[1], predictions[0], atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alone", "multi_worker"])
def test_restarted_training_ends_with_the_weights_of_an_uninterrupted_one(
    prepared: Prepared, tmp_path: Path, name: str
) -> None:
    config = {**CONFIG, "steps": 600, "checkpoint": {"every_steps": 50}, **TRAININGS[name]}
    whole, restarted = tmp_path / "whole", tmp_path / "restarted"
    for folder in (whole, restarted):
        folder.mkdir()
    Training(prepared, whole, config, model=MODEL).end()
    running = Training(prepared, restarted, config, model=MODEL)
    running.until(lambda: len(running.checkpoints()) > 1)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    Training(prepared, restarted, config, model=MODEL).end()
    logs = [restarted / "node.log", *(restarted / "run" / "logs").glob("worker-0.log")]
    steps = [int(step) for log in logs for step in re.findall(r"step (\d+): loss", log.read_text())]
    assert steps == sorted({*steps}), "no step was repeated"
    served = in_child(whole / "serve.log", keras3_output.serve, prepared, whole)
    weights = []
    for folder in (whole, restarted):
        last = checkpoint.path(str(folder / "run" / "checkpoints"), 600)
        keras = in_child(folder / "keras.log", keras3_output.predict, CODE, prepared, last, served["features"])
        weights.append(keras["weights"])
    for path, values in weights[0].items():
        np.testing.assert_allclose(weights[1][path], values, atol=1e-5, err_msg=path)


@pytest.mark.slow
def test_learning_rate_is_tuned(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [1e-6, 0.02]}, "trials": 2}
    trials, _, best = in_child(tmp_path / "node.log", tuner_runs.tune, prepared, tmp_path, CONFIG, tune, 0, MODEL)
    assert [trial["state"] for trial in trials] == ["completed", "completed"]
    assert best == {"learning_rate": 0.02}


@pytest.mark.extended
def test_mesh_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a tf_keras network for a mesh, received a Keras 3 model"):
        Training(prepared, tmp_path, {**CONFIG, "strategy": {"kind": "mesh", "data": 2}}, model=MODEL).end()
