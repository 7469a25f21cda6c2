"""Tasks of a training cluster are killed, frozen and preempted: the training completes, with an equally good model.

The cases come from TensorFlow's fault_tolerance_test_base, as far as they concern a training and not only the
coordinator. Further cases are faults that real clusters have.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.base.errors import MachineError
from components.results import task_load
from tests.support.fakes.expected_rpc_errors import torn_requests
from tests.support.runs import trainer_runs
from tests.support.runs.trainer_runs import Prepared, Training

STEPS, EVERY = 400, 50
CONFIG = {
    "steps": STEPS,
    "batch_size": 256,
    "learning_rate": 0.01,
    "checkpoint": {"every_steps": EVERY, "keep": 3},
}
ALONE: dict[str, Any] = {**CONFIG, "strategy": {"kind": "none"}}
MULTI_WORKER: dict[str, Any] = {**CONFIG, "strategy": {"kind": "multi_worker", "workers": 2}}
PARAMETER_SERVER: dict[str, Any] = {
    **CONFIG,
    "strategy": {"kind": "parameter_server", "workers": 2, "ps": 2, "shard_over_mb": 0.0001},
}
IN_BACKGROUND = {**PARAMETER_SERVER, "checkpoint": {**CONFIG["checkpoint"], "background_over_mb": 0.001}}
WITH_EVALUATOR = {**PARAMETER_SERVER, "evaluator": True}
AT_LEAST_ONCE = 2 * 10
"""Steps of the closures of two workers, which may be done again when their workers die: see ParameterServerSteps."""


@pytest.fixture(scope="session")
def alone(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the AUC of a training in one process, without a fault."""
    folder = tmp_path_factory.mktemp("alone")
    Training(prepared, folder, ALONE).end()
    return trainer_runs.auc(prepared, folder)


# test_killed_mid_step also compares its clusters with this training, although their tasks are killed.
@pytest.mark.slow
@pytest.mark.both_lines
@pytest.mark.parametrize("config", [MULTI_WORKER, WITH_EVALUATOR], ids=["in-step", "served"])
def test_every_strategy_makes_the_same_model(
    prepared: Prepared, alone: float, tmp_path: Path, config: dict[str, Any]
) -> None:
    assert alone > 0.95
    summary = Training(prepared, tmp_path, config).end()
    assert summary.items() >= {"steps": STEPS, "restarts": 0, "repeated": 0, "damaged": 0}.items()
    assert abs(trainer_runs.auc(prepared, tmp_path) - alone) < 0.005


@pytest.mark.parametrize(
    ("config", "victims", "restarts"),
    [
        pytest.param(MULTI_WORKER, ["worker-0"], 1, id="lead-in-step", marks=pytest.mark.slow),
        pytest.param(MULTI_WORKER, ["worker-1"], 1, id="worker-in-step", marks=pytest.mark.both_lines),
        pytest.param(MULTI_WORKER, ["worker-0", "worker-1"], 1, id="all-in-step", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, ["worker-1"], 1, id="worker", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, ["ps-1"], 1, id="ps", marks=pytest.mark.both_lines),
        pytest.param(PARAMETER_SERVER, ["chief-0"], 1, id="chief", marks=pytest.mark.slow),
        pytest.param(WITH_EVALUATOR, ["evaluator-0"], 1, id="evaluator", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, ["worker-0", "worker-1"], 2, id="all-workers", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, ["chief-0", "ps-0"], 1, id="chief-and-ps", marks=pytest.mark.slow),
    ],
)
def test_killed_mid_step(
    prepared: Prepared,
    alone: float,
    tmp_path: Path,
    config: dict[str, Any],
    victims: list[str],
    restarts: int,
) -> None:
    running = Training(prepared, tmp_path, config)
    running.until_step(2 * EVERY)
    running.kill(*victims)
    ends_well(running, prepared, alone, restarts)


@pytest.mark.both_lines
def test_lost_ps_is_replaced_while_workers_and_the_other_ps_continue(
    prepared: Prepared, alone: float, tmp_path: Path
) -> None:
    running = Training(prepared, tmp_path, WITH_EVALUATOR)
    running.until_step(2 * EVERY)
    before = {name: running.process(name) for name in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1")}
    started = {name: psutil.Process(pid).create_time() for name, pid in before.items()}
    running.kill("ps-1")
    chief = tmp_path / "work" / "logs" / "chief-0.log"

    def has_continued() -> bool:
        _, *later_starts = chief.read_text().split("=== chief-0")[1:]
        return any("loss" in start for start in later_starts)

    running.until(has_continued)
    for name in ("ps-0", "worker-0", "worker-1"):
        assert running.process(name) == before[name]
        assert psutil.Process(before[name]).create_time() == started[name]
    assert all(running.process(name) != before[name] for name in ("ps-1", "chief-0"))
    summary = ends_well(running, prepared, alone, 1)
    assert summary["steps"] >= STEPS
    assert "ps-1 was killed by SIGKILL at step" in running.log.read_text()
    assert "all tasks are restarted" not in running.log.read_text()


@pytest.mark.slow
def test_number_of_ps_may_change_when_a_training_is_resumed(prepared: Prepared, alone: float, tmp_path: Path) -> None:
    running = Training(prepared, tmp_path, PARAMETER_SERVER)
    running.until_step(2 * EVERY)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    more = {**PARAMETER_SERVER["strategy"], "ps": 3, "workers": 1, "partitioner": "fixed", "shards": 4}
    again = Training(prepared, tmp_path, {**PARAMETER_SERVER, "strategy": more})
    summary = ends_well(again, prepared, alone, 0)
    assert summary["repeated"] == 0
    resumed = (tmp_path / "run" / "logs" / "chief-0.log").read_text().rpartition("=== chief-0")[2]
    steps = [int(step) for step in re.findall(r"step (\d+): loss", resumed)]
    assert steps[0] > 2 * EVERY
    assert {load.task for load in task_load.from_json(summary["tasks"]) if load.is_ps} == {"ps-0", "ps-1", "ps-2"}


@pytest.mark.parametrize(
    ("config", "victim"),
    [
        pytest.param(MULTI_WORKER, "worker-0", id="in-step", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "chief-0", id="chief", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "ps-0", id="ps", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "worker-0", id="worker", marks=pytest.mark.slow),
        pytest.param(IN_BACKGROUND, "chief-0", id="chief-in-background", marks=pytest.mark.slow),
        pytest.param(IN_BACKGROUND, "ps-0", id="ps-in-background", marks=pytest.mark.slow),
    ],
)
def test_killed_mid_checkpoint(
    prepared: Prepared, alone: float, tmp_path: Path, config: dict[str, Any], victim: str
) -> None:
    running = Training(prepared, tmp_path, config)
    running.until_step(EVERY)
    running.until(lambda: running.half_written())
    running.kill(victim)
    ends_well(running, prepared, alone, 1)


@pytest.mark.parametrize(
    ("config", "victim"),
    [
        pytest.param(MULTI_WORKER, "worker-1", id="in-step", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "worker-0", id="worker", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "ps-0", id="ps", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "chief-0", id="chief", marks=pytest.mark.slow),
    ],
)
def test_frozen_past_its_heartbeat(
    prepared: Prepared, alone: float, tmp_path: Path, config: dict[str, Any], victim: str
) -> None:
    running = Training(prepared, tmp_path, {**config, "heartbeat_seconds": 8})
    running.until_step(EVERY)
    running.kill(victim, by=signal.SIGSTOP)
    ends_well(running, prepared, alone, 1)
    noticed = [f"{victim} has sent no heartbeat for 8 s: it is killed"]
    if config is MULTI_WORKER:
        # TensorFlow also notices a lost peer after ten seconds, and on a busy machine it may report first.
        noticed.append("worker-0 ended with exit code")
    assert any(message in running.log.read_text() for message in noticed)


@pytest.mark.parametrize(
    ("config", "victim"),
    [
        pytest.param(MULTI_WORKER, "worker-1", id="in-step", marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, "chief-0", id="chief", marks=pytest.mark.slow),
    ],
)
def test_preempted_with_a_grace(
    prepared: Prepared, alone: float, tmp_path: Path, config: dict[str, Any], victim: str
) -> None:
    running = Training(prepared, tmp_path, config)
    running.until_step(EVERY)
    running.kill(victim, by=signal.SIGTERM)
    summary = ends_well(running, prepared, alone, 1)
    assert summary["repeated"] == 0
    assert "ended with exit code 143" in running.log.read_text()


@pytest.mark.slow
def test_training_ends_although_a_worker_dies_repeatedly(prepared: Prepared, alone: float, tmp_path: Path) -> None:
    running = Training(prepared, tmp_path, PARAMETER_SERVER)
    for step in (EVERY, 4 * EVERY, 7 * EVERY):
        running.until_step(step)
        running.kill("worker-1")
    ends_well(running, prepared, alone, 3)


@pytest.mark.slow
def test_ps_dies_while_a_worker_comes_back(prepared: Prepared, alone: float, tmp_path: Path) -> None:
    running = Training(prepared, tmp_path, PARAMETER_SERVER)
    running.until_step(EVERY)
    before = running.process("worker-0")
    running.kill("worker-0")
    running.until(lambda: running.process("worker-0") != before)
    running.kill("ps-0")
    ends_well(running, prepared, alone, 2)


@pytest.mark.slow
def test_damaged_checkpoint_is_skipped_and_counted(prepared: Prepared, alone: float, tmp_path: Path) -> None:
    running = Training(prepared, tmp_path, MULTI_WORKER)
    running.until_step(4 * EVERY)
    running.supervisor.terminate()
    with pytest.raises(MachineError, match="training was stopped by SIGTERM"):
        running.end()
    *_, older, newest = running.checkpoints()
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    again = Training(prepared, tmp_path, MULTI_WORKER)
    summary = ends_well(again, prepared, alone, 0)
    assert summary["damaged"] == 1
    assert f"checkpoint {newest.name.partition('.')[0]} is damaged" in again.log.read_text()
    assert older.name.partition(".")[0] != newest.name.partition(".")[0]


@pytest.mark.slow
def test_single_process_continues_too(prepared: Prepared, alone: float, tmp_path: Path) -> None:
    running = Training(prepared, tmp_path, ALONE)
    running.until(lambda: len(running.checkpoints()) > 1)
    running.supervisor.kill()
    with pytest.raises(MachineError, match="was killed by SIGKILL"):
        running.end()
    again = Training(prepared, tmp_path, ALONE)
    again.end()
    assert abs(trainer_runs.auc(prepared, tmp_path) - alone) < 0.005
    second_attempt = again.log.read_text().rpartition("=== Trainer")[2]
    assert f"step {STEPS}: " in second_attempt
    assert f"step {EVERY}: " not in second_attempt


@pytest.mark.both_lines
def test_task_that_dies_at_every_start(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    # Put a file where the task expects its working directory.
    (tmp_path / "work" / "ps-1").write_text("in the way")
    with pytest.raises(MachineError, match=r"task ps-1 ended with exit code 1, 3 times in a row") as raised:
        Training(prepared, tmp_path, {**PARAMETER_SERVER, "max_restarts": 2}).end()
    log = Path(raised.value.remedy.removeprefix("see "))
    assert log.name == "ps-1.log"
    assert log.read_text().count("FileExistsError") == 3
    assert "File exists" in raised.value.details[0]


@pytest.mark.parametrize(
    "config",
    [pytest.param(MULTI_WORKER, id="in-step", marks=pytest.mark.slow), pytest.param(WITH_EVALUATOR, id="served")],
)
def test_no_task_outlives_the_supervisor(prepared: Prepared, tmp_path: Path, config: dict[str, Any]) -> None:
    running = Training(prepared, tmp_path, config)
    running.until_step(EVERY)
    family = running.supervisor.children(recursive=True)
    assert len(family) == (2 if config is MULTI_WORKER else 6)
    os.kill(running.supervisor.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    with pytest.raises(MachineError, match="was killed by SIGKILL"):
        running.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
@pytest.mark.parametrize(
    "config",
    [pytest.param(MULTI_WORKER, id="in-step", marks=pytest.mark.slow), pytest.param(PARAMETER_SERVER, id="served")],
)
@pytest.mark.slow
def test_full_disk_at_the_export_is_an_error(prepared: Prepared, tmp_path: Path, config: dict[str, Any]) -> None:
    running = Training(prepared, tmp_path, {**config, "steps": EVERY}, small_disk=True)
    with pytest.raises(MachineError) as raised:
        running.end()
    if "no small disk" in raised.value.headline:
        pytest.skip("no right to mount here")
    assert raised.value.headline.startswith("the disk is full")
    assert "restarted" not in running.log.read_text()


def ends_well(running: Training, prepared: Prepared, alone: float, restarts: int) -> dict[str, Any]:
    summary = running.end()
    kind = running.config["strategy"]["kind"]
    most = 0 if kind == "multi_worker" else AT_LEAST_ONCE
    assert STEPS <= summary["steps"] <= STEPS + most
    torn = torn_requests(running.folder / "run" / "logs")
    assert restarts <= summary["restarts"] <= restarts + torn
    # A checkpoint that is written in the background may be lost with the steps after it.
    intervals = 2 if running.config is IN_BACKGROUND else 1
    assert summary["repeated"] <= (intervals * EVERY + most) * (1 + torn)
    assert abs(trainer_runs.auc(prepared, running.folder) - alone) < 0.005
    return summary
