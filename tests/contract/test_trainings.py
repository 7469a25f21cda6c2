"""Every strategy, precision and input trains the same model, and exports it in the same form."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.base.errors import InputError, MachineError
from components.results import task_load
from components.trainer import placement, strategy
from components.trainer.cluster import tf_config
from components.trainer.config import TrainingConfig
from pipeline.inspection import training_curves
from tests.support.fakes.expected_rpc_errors import assert_undisturbed
from tests.support.programs import mesh_devices, tensorboard_pages, training_output
from tests.support.programs.training_output import Trained
from tests.support.runs.command import light_command
from tests.support.runs.trainer_runs import Prepared, Training, train_on_devices
from tests.support.servers.in_fork_server import in_child

STEPS, EVERY = 200, 50
CHECKPOINTS = set(range(EVERY, STEPS + 1, EVERY))
TRAIN_ROWS, EVAL_ROWS = 3976, 4024
RATE = 0.01
CONFIG: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 256,
    "learning_rate": RATE,
    "checkpoint": {"every_steps": EVERY, "keep": 3},
}
PARAMETER_SERVER = {"kind": "parameter_server", "workers": 2, "ps": 2, "shard_over_mb": 0.0001}
MULTI_WORKER = {"kind": "multi_worker", "workers": 2}
TRAININGS: dict[str, dict[str, Any]] = {
    "alone": {
        "evaluator": True,
        "tensorboard": {"histograms": True, "profile": [60, 80], "graph": True, "projector": True, "gradients": True},
    },
    "alone-bfloat16": {"precision": "mixed_bfloat16"},
    "alone-float16": {"precision": "mixed_float16"},
    "mirrored": {"strategy": {"kind": "mirrored"}, "tensorboard": {"gradients": True}},
    "mesh": {"strategy": {"kind": "mesh", "data": 2, "model": 2}, "tensorboard": {"gradients": True}},
    "mesh-stages": {
        "strategy": {
            "kind": "mesh",
            "data": 2,
            "place": {"hidden_*": 1, "deep_logits/kernel": 1},
            "micro_batches": 4,
        },
    },
    "min_size": {
        "strategy": PARAMETER_SERVER,
        "evaluator": True,
        # Write checkpoints while training continues, as for large tables.
        "checkpoint": {"every_steps": EVERY, "keep": 3, "background_over_mb": 0.001},
    },
    "max_size-bfloat16": {"strategy": {**PARAMETER_SERVER, "partitioner": "max_size"}, "precision": "mixed_bfloat16"},
    "bfloat16_gradients": {"strategy": {**PARAMETER_SERVER, "gradient_dtype": "bfloat16"}},
    "fixed-streaming": {
        "strategy": {**PARAMETER_SERVER, "partitioner": "fixed"},
        "cache": "none",
        "table_learning_rate": 0.05,
        "tensorboard": {"gradients": True},
    },
    "in_step-bfloat16-streaming": {
        "strategy": MULTI_WORKER,
        "precision": "mixed_bfloat16",
        "cache": "none",
        "table_learning_rate": 0.05,
    },
    "in_step": {"strategy": MULTI_WORKER},
    "in_step-mesh": {
        "strategy": {**MULTI_WORKER, "model": 2, "place": {"deep_logits": 1}, "micro_batches": 2},
    },
    "in_step-float16": {
        "strategy": MULTI_WORKER,
        "precision": "mixed_float16",
        "tensorboard": {"gradients": True},
    },
    "mirrored-float16": {"strategy": {"kind": "mirrored"}, "precision": "mixed_float16"},
    "alone-xla": {"jit_compile": True, "threads": {"intra": 1, "inter": 1}},
    "in_step-xla": {"strategy": MULTI_WORKER, "jit_compile": True},
    "alone-sgd": {
        "optimizer": {"kind": "sgd", "nesterov": True, "clip_norm": 1.0, "accumulate": 3},
        "schedule": {"warm_up_steps": 20},
        "learning_rate": 0.5,
    },
    "in_step-sgd": {
        "strategy": MULTI_WORKER,
        "optimizer": {"kind": "sgd", "nesterov": True, "clip_norm": 1.0, "accumulate": 3},
        "schedule": {"warm_up_steps": 20},
        "learning_rate": 0.5,
    },
    "mesh-lion": {
        "strategy": {"kind": "mesh", "data": 2, "model": 2},
        "optimizer": {"kind": "lion", "accumulate": 2},
        "schedule": {"kind": "polynomial", "end": 0.1},
        "learning_rate": 0.002,
    },
    "min_size-adagrad": {
        "strategy": PARAMETER_SERVER,
        "optimizer": {"kind": "adagrad", "clip_value": 1.0},
        "schedule": {"kind": "constant"},
        "learning_rate": 0.1,
    },
}
BOTH_LINES = {"mesh", "min_size"}
EXTENDED = {"alone", "min_size"}
SLOW = {
    "mesh",
    "mesh-stages",
    "alone-bfloat16",
    "alone-float16",
    "mirrored",
    "max_size-bfloat16",
    "bfloat16_gradients",
    "fixed-streaming",
    "in_step-bfloat16-streaming",
    "in_step",
    "in_step-mesh",
    "in_step-float16",
    "mirrored-float16",
    "alone-xla",
    "in_step-xla",
    "alone-sgd",
    "in_step-sgd",
    "mesh-lion",
    "min_size-adagrad",
}
SCALARS = {"loss", "learning_rate", "steps_per_second", "input_wait"}
TABLES = {
    "min_size": {(41, 8): 2, (5, 4): 1, (46, 1): 2},
    "max_size-bfloat16": {(41, 8): 14, (5, 4): 1, (46, 1): 2},
    "fixed-streaming": {(41, 8): 2, (5, 4): 2, (46, 1): 2},
}
"""Training → shape of each table of ids → its shards. Two tables take 1312 and 184 bytes, the third takes 80, and a
shard is at least, or at most, 104."""


def mark_trainings(*names: str) -> list[Any]:
    """Return trainings as parameters of a test, with their marks."""
    marks = ((BOTH_LINES, pytest.mark.both_lines), (EXTENDED, pytest.mark.extended), (SLOW, pytest.mark.slow))
    return [pytest.param(name, marks=[mark for several, mark in marks if name in several]) for name in names]


@dataclass(frozen=True)
class EndedTraining:
    """A training that has ended, and its outputs."""

    folder: Path
    summary: dict[str, Any]
    outputs: Trained

    def curves(self, kind: str) -> dict[str, dict[int, Any]]:
        return training_output.curves(self.folder / "run" / kind)

    def log(self, task: str) -> str:
        return (self.folder / "run" / "logs" / f"{task}.log").read_text()


@pytest.fixture(scope="module")
def get_training(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], EndedTraining]:
    """Return a function that returns a training by its name, and trains it at the first call."""

    @functools.cache
    def make(name: str) -> EndedTraining:
        folder = tmp_path_factory.mktemp(name)
        summary = Training(prepared, folder, {**CONFIG, **TRAININGS[name]}).end()
        return EndedTraining(folder, summary, training_output.look(prepared, folder))

    return make


@pytest.mark.parametrize("name", mark_trainings(*TRAININGS))
def test_exported_model_predicts_the_same_as_the_checkpoint(
    get_training: Callable[[str], EndedTraining], name: str
) -> None:
    trained = get_training(name).outputs
    assert abs(trained.auc - get_training("alone").outputs.auc) < 0.005
    assert trained.auc > 0.95
    np.testing.assert_allclose(trained.predictions, trained.restored, rtol=0, atol=1e-6)
    assert "DT_FLOAT" in trained.dtypes
    assert not trained.dtypes & {"DT_BFLOAT16", "DT_HALF"}
    assert trained.saved == trained.weights, "neither slots of the optimizer nor anything else"


@pytest.mark.slow
def test_optimizer_takes_the_same_steps_on_two_workers(get_training: Callable[[str], EndedTraining]) -> None:
    alone, in_step = (get_training(name).curves("train")["loss"] for name in ("alone-sgd", "in_step-sgd"))
    # Each worker reads other rows, so batches differ, but not what they are drawn from.
    np.testing.assert_allclose(in_step[STEPS], alone[STEPS], rtol=0.1, atol=0.01)


@pytest.mark.slow
def test_compiled_steps_are_the_same_training(get_training: Callable[[str], EndedTraining]) -> None:
    compiled, plain = (get_training(name).outputs.predictions for name in ("alone-xla", "alone"))
    np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_mirrored_on_one_device_is_the_same_training(get_training: Callable[[str], EndedTraining]) -> None:
    np.testing.assert_allclose(
        get_training("mirrored").outputs.predictions, get_training("alone").outputs.predictions, rtol=0, atol=1e-6
    )


@pytest.mark.slow
def test_mirrored_on_two_devices_is_the_same_training(
    prepared: Prepared, get_training: Callable[[str], EndedTraining], tmp_path: Path
) -> None:
    config = {**CONFIG, **TRAININGS["mirrored"]}
    in_child(tmp_path / "node.log", train_on_devices, prepared, tmp_path, config, 2)
    assert "devices ('/job:localhost/replica:0/task:0/device:CPU:0', " in (tmp_path / "node.log").read_text()
    trained = training_output.look(prepared, tmp_path)
    np.testing.assert_allclose(trained.predictions, get_training("alone").outputs.predictions, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.both_lines
def test_mesh_is_the_same_training_on_four_devices(
    prepared: Prepared, get_training: Callable[[str], EndedTraining]
) -> None:
    mesh, alone = get_training("mesh"), get_training("alone")
    np.testing.assert_allclose(mesh.outputs.predictions, alone.outputs.predictions, rtol=0, atol=1e-5)
    curves, expected_curves = (training.curves("train") for training in (mesh, alone))
    for tag in ("loss", "learning_rate"):
        assert curves[tag].keys() == expected_curves[tag].keys()
        np.testing.assert_allclose([*curves[tag].values()], [*expected_curves[tag].values()], rtol=1e-4, atol=1e-8)
    log = (mesh.folder / "node.log").read_text()
    sizes = re.findall(r"CPU:(\d): ([\d,]+) bytes of weights, ([\d,]+) bytes of moments", log)
    numbers = {int(device): (weights, moments) for device, weights, moments in sizes}
    # Tables of 8 and 4 columns, a kernel of 16 columns and the 46 weights of IDs are divided in two; the rest is on the
    # first device of every row.
    divided, undivided = 4 * (41 * 8 + 5 * 4 + 22 * 16 + 46) // 2, 4 * (16 + 16 + 1)
    first, second = (divided + undivided, 2 * (divided + undivided)), (divided, 2 * divided)
    wanted_numbers = {0: first, 1: second, 2: first, 3: second}
    assert numbers == {device: tuple(f"{size:,}" for size in pair) for device, pair in wanted_numbers.items()}
    config = {**CONFIG, **TRAININGS["mesh"]}
    planned = in_child(mesh.folder / "plan.log", mesh_devices.plan_placement, prepared, config)
    placed = json.loads((mesh.folder / "run" / placement.FILE).read_text())
    assert json.loads(json.dumps(planned["variables"])) == placed["variables"]
    assert [{**device, "device": f"CPU:{device['device']}"} for device in planned["devices"]] == placed["devices"]
    assert mesh.summary["mesh_devices"] == 4
    assert mesh.summary["mesh_device_mb"] == 1


@pytest.mark.slow
def test_stages_of_a_mesh_are_the_same_training(get_training: Callable[[str], EndedTraining]) -> None:
    stages, alone = get_training("mesh-stages"), get_training("alone")
    np.testing.assert_allclose(stages.outputs.predictions, alone.outputs.predictions, rtol=0, atol=1e-5)
    log = (stages.folder / "node.log").read_text()
    assert re.search(
        r"whole on device 1: hidden_0/kernel, hidden_0/bias, deep_logits/kernel, deep_logits/bias$", log, re.M
    )
    placed = json.loads((stages.folder / "run" / placement.FILE).read_text())
    weights = [device["weights"] for device in placed["devices"]]
    # The tables and the weights of IDs are on the first stage, and the layers on the second, in both copies.
    assert weights == [4 * (41 * 8 + 5 * 4 + 46), 4 * (22 * 16 + 16 + 16 + 1)] * 2


@pytest.mark.slow
def test_workers_with_a_mesh_each_are_the_same_training(get_training: Callable[[str], EndedTraining]) -> None:
    mesh, plain = get_training("in_step-mesh"), get_training("in_step")
    np.testing.assert_allclose(mesh.outputs.predictions, plain.outputs.predictions, rtol=0, atol=1e-5)
    for worker in ("worker-0", "worker-1"):
        assert "whole on device 2: deep_logits/kernel, deep_logits/bias\n" in mesh.log(worker)


@pytest.mark.parametrize("name", mark_trainings("alone-bfloat16", "alone-float16"))
def test_in_16_bits_something_else_is_computed(get_training: Callable[[str], EndedTraining], name: str) -> None:
    first, whole = (get_training(training).curves("train")["loss"][EVERY] for training in (name, "alone"))
    assert first != whole
    assert first == pytest.approx(whole, rel=0.05, abs=1e-3)


@pytest.mark.parametrize("name", mark_trainings(*TABLES))
def test_tables_in_shards_are_whole_in_the_checkpoint(get_training: Callable[[str], EndedTraining], name: str) -> None:
    assert get_training(name).outputs.tables == TABLES[name]
    assert get_training("alone").outputs.tables == dict.fromkeys(TABLES[name], 1)


@pytest.mark.parametrize(("name", "off"), [("alone", 1e-6), ("min_size", RATE / 10)])
@pytest.mark.extended
def test_curves_of_training(get_training: Callable[[str], EndedTraining], name: str, off: float) -> None:
    curves = get_training(name).curves("train")
    assert {tag: set(curves[tag]) for tag in SCALARS} == dict.fromkeys(SCALARS, CHECKPOINTS)
    for step, rate in curves["learning_rate"].items():
        # The logged rate belongs to the previous step; independent workers may lag one more step behind.
        assert rate == pytest.approx(RATE * (1 + math.cos(math.pi * (step - 1) / STEPS)) / 2, abs=off)
    assert all(0 < loss < 0.7 for loss in curves["loss"].values())
    assert all(rate > 0 for rate in curves["steps_per_second"].values())


@pytest.mark.extended
def test_loads_of_every_task_are_recorded(get_training: Callable[[str], EndedTraining]) -> None:
    training = get_training("min_size")
    loads = {load.task: load for load in task_load.from_json(training.summary["tasks"])}
    assert set(loads) == {"chief-0", "worker-0", "worker-1", "ps-0", "ps-1", "evaluator-0"}
    servers, workers = ([loads[f"{kind}-{number}"] for number in (0, 1)] for kind in ("ps", "worker"))
    # Each of Adam's two moments is as large as the weights, and the number of its steps is an int64.
    weights = 4 * sum(math.prod(shape) for shape in training.outputs.weights)
    assert sum(load.variable_bytes for load in servers) == 3 * weights + 8
    assert all(load.variable_bytes > 0 for load in servers)
    for load in (*servers, *workers):
        assert load.cpu_seconds > 0
        assert load.peak_bytes > 50_000_000
    # A worker fetches the weights of dense layers in every step, and sends back gradients of the same size.
    dense = 4 * (22 * 16 + 16 + 16 + 1)
    assert sum(load.sent_bytes for load in servers) > STEPS * dense
    assert sum(load.received_bytes for load in servers) > STEPS * dense
    assert sum(load.received_bytes for load in workers) > STEPS * dense
    curves = training_curves.read(training.folder / "run" / "tasks")
    assert set(curves["task/steps_per_second"]) <= {"worker-0", "worker-1"}
    for name in ("peak_memory_mb", "sent_mb_per_second", "received_mb_per_second", "cpu_cores"):
        assert set(curves[f"task/{name}"]) == set(loads)
    held = {task: points[-1][1] for task, points in curves["task/variables_mb"].items()}
    assert held == {load.task: pytest.approx(load.variable_bytes / 1e6, rel=1e-5, abs=1e-6) for load in servers}


@pytest.mark.parametrize("name", mark_trainings("alone", "min_size"))
def test_checkpoints_are_evaluated_on_every_row(get_training: Callable[[str], EndedTraining], name: str) -> None:
    training = get_training(name)
    curves = training.curves("eval")
    if name == "alone":
        log = (training.folder / "node.log").read_text()
        assert set(curves["auc"]) == CHECKPOINTS
    else:
        log = training.log("evaluator-0")
        # The evaluator reads only the newest checkpoint, so it may skip some.
        assert {STEPS} <= set(curves["auc"]) <= CHECKPOINTS
    assert set(curves) == {"loss", "auc"}
    assert set(curves["loss"]) == set(curves["auc"])
    assert curves["auc"][STEPS] == pytest.approx(training.outputs.auc, abs=0.002)
    evaluated = re.findall(r"step (\d+): evaluated (\d+) rows", log)
    assert {(int(step), int(rows)) for step, rows in evaluated} == {(step, EVAL_ROWS) for step in curves["auc"]}


STOPPING: dict[str, Any] = {
    **CONFIG,
    "steps": 2000,
    "learning_rate": 0.3,
    "early_stopping": 3,
    "evaluator": True,
    "checkpoint": {"every_steps": 10, "keep": 2},
}


def assert_ended_early(prepared: Prepared, folder: Path, starts: int = 1) -> None:
    """Check that the model has the weights with the lowest validation loss, not the last weights."""
    curves = training_output.curves(folder / "run" / "validation")
    best = min(curves["loss"], key=curves["loss"].__getitem__)
    assert max(curves["loss"]) == best + 30 < 2000
    assert len(list((folder / "run" / "validation").iterdir())) <= starts, "not a file for each checkpoint"
    trained = training_output.look(prepared, folder)
    assert trained.auc == pytest.approx(curves["auc"][best], abs=0.02), "the eval split has other rows"
    assert not np.allclose(trained.predictions, trained.restored, atol=1e-3), "the last checkpoint is another one"


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param({"kind": "none"}, marks=pytest.mark.extended),
        pytest.param(MULTI_WORKER, marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, marks=pytest.mark.slow),
        pytest.param({"kind": "mirrored"}, marks=pytest.mark.slow),
        pytest.param({"kind": "mesh", "data": 2, "model": 2}, marks=pytest.mark.slow),
        pytest.param(TRAININGS["mesh-stages"]["strategy"], marks=pytest.mark.slow, id="mesh-stages"),
        pytest.param(TRAININGS["in_step-mesh"]["strategy"], marks=pytest.mark.slow, id="in_step-mesh"),
    ],
    ids=lambda strategy: strategy["kind"],
)
def test_training_that_gets_no_better_ends_early_with_its_best_weights(
    prepared: Prepared, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    # Workers that do not wait for each other get losses above 100 with the rate of STOPPING. The AUC of such a model
    # differs between the two parts by more than the tolerance.
    rate = 0.05 if strategy is PARAMETER_SERVER else STOPPING["learning_rate"]
    Training(prepared, tmp_path, {**STOPPING, "learning_rate": rate, "strategy": strategy}).end()
    assert_ended_early(prepared, tmp_path)
    evaluated = training_output.curves(tmp_path / "run" / "eval")
    if strategy["kind"] == "none":
        rows = re.findall(r"evaluated (\d+) rows", (tmp_path / "node.log").read_text())
        held_out, whole = sorted({int(row) for row in rows})
        assert (held_out, whole) == (pytest.approx(0.15 * TRAIN_ROWS, abs=1), EVAL_ROWS)
        assert set(evaluated["loss"]) == set(training_output.curves(tmp_path / "run" / "validation")["loss"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "none"},
        MULTI_WORKER,
        PARAMETER_SERVER,
        pytest.param(TRAININGS["in_step-mesh"]["strategy"], id="in_step-mesh"),
    ],
    ids=lambda strategy: strategy["kind"],
)
def test_restarted_training_ends_early_too(prepared: Prepared, tmp_path: Path, strategy: dict[str, Any]) -> None:
    running = Training(prepared, tmp_path, {**STOPPING, "learning_rate": 0.05, "strategy": strategy})
    running.until(lambda: len(running.checkpoints()) > 1)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    Training(prepared, tmp_path, {**STOPPING, "learning_rate": 0.05, "strategy": strategy}).end()
    assert_ended_early(prepared, tmp_path, starts=2)


@pytest.mark.extended
def test_histograms_and_profile_are_written_on_request(get_training: Callable[[str], EndedTraining]) -> None:
    profiled = get_training("alone")
    curves = profiled.curves("train")
    histograms = [tag for tag in curves if set(curves[tag]) == CHECKPOINTS and tag not in SCALARS]
    assert len(histograms) == 2 * len(profiled.outputs.weights), "the weights and their moments"
    for tag in ("wide/rows:0", "moment/wide/rows:0"):
        assert curves[tag][STEPS][:, 2].sum() == 46, "each number in one bucket"
    [profile] = (profiled.folder / "run" / "train").glob("plugins/profile/*/*.xplane.pb")
    assert profile.stat().st_size > 0


@pytest.mark.parametrize("name", mark_trainings("alone", "mirrored", "mesh", "fixed-streaming", "in_step-float16"))
def test_gradients_are_written_under_every_strategy(get_training: Callable[[str], EndedTraining], name: str) -> None:
    trained = get_training(name)
    histograms = trained.curves("gradients")
    assert len(histograms) == len(trained.outputs.weights)
    assert all(set(steps) == CHECKPOINTS for steps in histograms.values())
    assert histograms.keys() == get_training("alone").curves("gradients").keys()
    for buckets in (steps[STEPS] for steps in histograms.values()):
        assert np.isfinite(buckets).all()
        assert buckets[:, 2].sum() > 0
    assert any(buckets[0, 0] < 0 < buckets[-1, 1] for buckets in (steps[STEPS] for steps in histograms.values()))


@pytest.mark.extended
@pytest.mark.parametrize(
    "strategy", [{"kind": "none"}, pytest.param(PARAMETER_SERVER, marks=pytest.mark.slow)], ids=["none", "ps"]
)
def test_running_training_is_profiled_by_a_command(
    prepared: Prepared, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    # The training cannot end before the profile.
    running = Training(prepared, tmp_path, {**CONFIG, "steps": 1_000_000, "strategy": strategy})
    folder = tmp_path / "run"
    running.until(lambda: list(folder.glob("train/*tfevents*")))
    ended = light_command("runs", "profile", "--folder", str(folder), "--steps", "20")
    assert (ended.exit_code, ended.out) == (0, f"requested a profile of 20 steps in {folder}\n")
    running.until(lambda: list(folder.glob("train/plugins/profile/*/*.xplane.pb")))
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    assert not list(folder.glob("profile_request.json"))


@pytest.mark.extended
def test_projector_and_graph_are_shown_by_tensorboard(
    get_training: Callable[[str], EndedTraining], tmp_path: Path
) -> None:
    shown = in_child(tmp_path / "tensorboard.log", tensorboard_pages.read, get_training("alone").folder / "run")
    assert shown["graph"]
    embeddings = shown["embeddings"]
    assert sum(len(embedding["labels"]) for embedding in embeddings.values()) == 41 + 5
    assert {embedding["vectors"].shape[1] for embedding in embeddings.values()} == {4, 8}
    for embedding in embeddings.values():
        assert embedding["stored"]
        assert len(set(embedding["labels"])) == len(embedding["labels"]) == len(embedding["vectors"])
    assert any("(missing)" in embedding["labels"] for embedding in embeddings.values())


@pytest.mark.extended
def test_without_a_request_neither_histograms_nor_a_profile_are_written(
    get_training: Callable[[str], EndedTraining],
) -> None:
    plain = get_training("min_size")
    assert set(plain.curves("train")) == SCALARS
    assert not (plain.folder / "run" / "train" / "plugins").exists()


@pytest.mark.both_lines
@pytest.mark.slow
def test_checkpoint_restores_into_another_number_of_ps(
    prepared: Prepared, get_training: Callable[[str], EndedTraining], tmp_path: Path
) -> None:
    # Frequent checkpoints slow the training down, so that SIGTERM arrives long before its end.
    often = {**CONFIG, "checkpoint": {"every_steps": 10, "keep": 3}}
    running = Training(prepared, tmp_path, {**often, "strategy": PARAMETER_SERVER})
    running.until_step(EVERY)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    saved = max(int(file.name.split(".")[0].removeprefix("step-")) for file in running.checkpoints())
    assert 0 < saved < STEPS
    summary = Training(prepared, tmp_path, {**often, "strategy": {**PARAMETER_SERVER, "ps": 3, "workers": 1}}).end()
    assert_undisturbed(summary, STEPS, tmp_path / "run" / "logs")
    again = EndedTraining(tmp_path, summary, training_output.look(prepared, tmp_path))
    steps = re.findall(r"step (\d+): loss", again.log("chief-0").rpartition("=== chief-0, process")[2])
    assert [int(step) for step in steps] == [step for step in sorted(CHECKPOINTS) if step > saved]
    assert again.outputs.tables == {(41, 8): 3, (5, 4): 1, (46, 1): 2}
    assert abs(again.outputs.auc - get_training("alone").outputs.auc) < 0.005


@pytest.mark.extended
@pytest.mark.both_lines
def test_each_device_of_a_mesh_computes_with_its_own_columns(tmp_path: Path) -> None:
    devices = in_child(tmp_path / "trace.log", mesh_devices.devices_of_step)
    assert devices["CPU:1"] == [
        ("MatMul", (5, 4)),
        ("MatMul", (5, 7)),
        ("MatMul", (7, 4)),
        ("ResourceApplyAdam", (7, 4)),
        ("ResourceGather", (5, 1, 2)),
        # Adam's moments for the rows of the batch.
        ("ResourceGather", (None, 2)),
        ("ResourceGather", (None, 2)),
    ]
    assert devices["CPU:3"] == devices["CPU:1"]
    assert devices["CPU:2"] == devices["CPU:0"]
    assert set(devices["CPU:0"]) - set(devices["CPU:1"]) == {
        ("ResourceApplyAdam", (1,)),
        ("ResourceApplyAdam", (8, 1)),
        ("ResourceApplyAdam", (8,)),
        # These are the logits and their gradients.
        ("MatMul", (5, 1)),
        ("MatMul", (5, 8)),
        ("MatMul", (8, 1)),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "next_name"), [("mesh", "alone"), ("mesh-stages", "mesh-stages")])
def test_checkpoint_of_a_mesh_restores_into_one_process_or_a_mesh(
    prepared: Prepared, get_training: Callable[[str], EndedTraining], tmp_path: Path, name: str, next_name: str
) -> None:
    often = {**CONFIG, "checkpoint": {"every_steps": 10, "keep": 3}}
    running = Training(prepared, tmp_path, {**often, **TRAININGS[name]})
    running.until(lambda: len(running.checkpoints()) > 1)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    saved = max(int(file.name.split(".")[0].removeprefix("step-")) for file in running.checkpoints())
    assert 0 < saved < STEPS
    Training(prepared, tmp_path, {**often, "strategy": TRAININGS[next_name].get("strategy", {})}).end()
    trained = training_output.look(prepared, tmp_path)
    np.testing.assert_allclose(trained.predictions, get_training("alone").outputs.predictions, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "cluster", "message"),
    [
        (
            "parameter_server",
            {"chief": ["chief:1"], "worker": ["worker:1", "worker:2"]},
            "expected a chief, workers and ps for parameter_server, received 1 chief, 2 worker",
        ),
        (
            "parameter_server",
            {"chief": ["chief:1"], "ps": ["ps:1"]},
            "expected a chief, workers and ps for parameter_server, received 1 chief, 1 ps",
        ),
        (
            "multi_worker",
            {"chief": ["chief:1"], "worker": ["worker:1"], "ps": ["ps:1"]},
            "expected workers only for multi_worker, received 1 chief, 1 ps, 1 worker",
        ),
    ],
    ids=["no-ps", "no-worker", "ps-in-step"],
)
def test_cluster_that_does_not_fit_the_strategy_is_an_error(
    monkeypatch: pytest.MonkeyPatch, kind: str, cluster: dict[str, list[str]], message: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    config = TrainingConfig.model_validate({**CONFIG, "strategy": {"kind": kind}})
    with pytest.raises(InputError, match=f"TF_CONFIG: {message}"):
        strategy.distribute(config, tf_config.role())


@pytest.mark.extended
@pytest.mark.both_lines
def test_machine_without_a_tpu_is_an_error(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a TPU for tpu, received no answer"):
        Training(prepared, tmp_path, {**CONFIG, "strategy": {"kind": "tpu"}}).end()


@pytest.mark.extended
def test_loss_that_is_not_finite_ends_training(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a finite loss, received (nan|inf) at step \d+") as raised:
        Training(prepared, tmp_path, {**CONFIG, "learning_rate": 1e30}).end()
    assert raised.value.remedy.startswith("lower training.learning_rate")
