"""Tests of the supervisor: which tasks it restarts, at which addresses and how often, and the final error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError, MachineError
from pipeline.inspection import training_curves
from tests.support.fakes import scripted_cluster
from tests.support.fakes.scripted_cluster import starts
from tests.support.servers.in_fork_server import in_child

MULTI_WORKER = {"strategy": {"kind": "multi_worker", "workers": 2}}
PARAMETER_SERVER = {"strategy": {"kind": "parameter_server", "workers": 2, "ps": 1}}


def supervise(
    folder: Path, training: dict[str, Any], stalled_heartbeats: int = 10, gpus: str = "-1", **scripts: list[str]
) -> dict[str, int]:
    scripts_by_task = {name.replace("_", "-"): script for name, script in scripts.items()}
    summary: dict[str, int] = in_child(
        folder / "node.log", scripted_cluster.supervise, folder, training, scripts_by_task, stalled_heartbeats, gpus
    )
    return summary


def test_cluster_without_failures_runs_to_the_end(tmp_path: Path) -> None:
    summary = supervise(tmp_path, PARAMETER_SERVER, chief_0=["restored=0 step=5 saved=5 step=7 saved=7"])
    assert summary.items() >= {"steps": 7, "restarts": 0, "repeated": 0, "damaged": 0}.items()
    assert min(summary["worker_peak_mb"], summary["ps_peak_mb"]) > 0
    [chief] = starts(tmp_path, "chief-0")
    assert chief["task"] == {"type": "chief", "index": 0}
    assert {kind: len(task_addresses) for kind, task_addresses in chief["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    addresses = [address for task_addresses in chief["cluster"].values() for address in task_addresses]
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "chief-0.log", "ps-0.log", "worker-0.log", "worker-1.log"
    ]  # fmt: skip


def test_loads_of_the_tasks_are_counted_over_their_restarts_and_written_as_curves(tmp_path: Path) -> None:
    for fifo in ("first", "second", "worker"):
        os.mkfifo(tmp_path / fifo)
    chief = 'meet=first meet=worker variables={"ps-0":4096} steps={"worker-0":7,"worker-1":3} meet=second step=10'
    summary: dict[str, Any] = supervise(
        tmp_path,
        PARAMETER_SERVER,
        ps_0=["transfer=1000 let=first serve"],
        worker_0=["transfer=300 let=worker kill", "transfer=40 let=second serve"],
        chief_0=[chief],
    )
    loads = {load["task"]: load for load in summary["tasks"]}
    assert set(loads) == {"chief-0", "ps-0", "worker-0", "worker-1"}
    for task, size in {"chief-0": 0, "ps-0": 1000, "worker-0": 340, "worker-1": 0}.items():
        # Both ends of the connections belong to the task.
        assert (loads[task]["sent_bytes"], loads[task]["received_bytes"]) == (size, size)
        assert loads[task]["variable_bytes"] == (4096 if task == "ps-0" else 0)
    assert summary["ps_peak_mb"] == loads["ps-0"]["peak_bytes"] // 1_000_000
    assert "ps-0: holds 0.0 MB of variables, at most " in (tmp_path / "node.log").read_text()
    curves = training_curves.read(tmp_path / "tasks")
    assert set(curves["task/peak_memory_mb"]) == set(loads)
    assert curves["task/variables_mb"] == {"ps-0": [(10, pytest.approx(4096 / 1e6, rel=1e-6, abs=1e-9))]}
    rates = {task: points[-1][1] for task, points in curves["task/steps_per_second"].items()}
    assert rates["worker-0"] / rates["worker-1"] == pytest.approx(7 / 3, rel=1e-5, abs=1e-5)


def test_warning_of_a_task_is_also_in_the_log_of_the_node(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "up")
    supervise(tmp_path, PARAMETER_SERVER, ps_0=["warn=exposed let=up serve"], chief_0=["meet=up step=1"])
    assert "exposed" in (tmp_path / "node.log").read_text()
    assert "exposed" in (tmp_path / "logs" / "ps-0.log").read_text()


@pytest.mark.parametrize(
    ("gpus", "workers", "shares"),
    [
        ("0,1,2", 2, ["0,2", "1"]),
        ("4,5", 2, ["4", "5"]),
        ("GPU-8a,GPU-9b", 3, ["GPU-8a", "GPU-9b", "GPU-8a"]),
        ("-1", 2, ["-1", "-1"]),
    ],
)
def test_workers_share_the_gpus_and_other_tasks_do_not_get_any(
    tmp_path: Path, gpus: str, workers: int, shares: list[str]
) -> None:
    fifos = [f"up-{number}" for number in range(workers)]
    for fifo in (*fifos, "ps"):
        os.mkfifo(tmp_path / fifo)
    scripts = {f"worker_{number}": [f"let={fifo} serve"] for number, fifo in enumerate(fifos)}
    training = {"strategy": {"kind": "parameter_server", "workers": workers, "ps": 1}}
    wait_for_all = " ".join(f"meet={fifo}" for fifo in (*fifos, "ps"))
    supervise(tmp_path, training, gpus=gpus, chief_0=[f"{wait_for_all} step=1"], ps_0=["let=ps serve"], **scripts)
    gpus_by_task = {name: [start["gpus"] for start in starts(tmp_path, name)] for name in ("chief-0", "ps-0")}
    assert gpus_by_task == {"chief-0": ["-1"], "ps-0": ["-1"]}
    assert [starts(tmp_path, f"worker-{number}")[0]["gpus"] for number in range(workers)] == shares


def test_failed_worker_of_a_parameter_server_is_restarted_alone_at_the_same_address(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "back")
    summary = supervise(tmp_path, PARAMETER_SERVER, worker_1=["kill", "let=back serve"], chief_0=["meet=back step=3"])
    assert summary.items() >= {"steps": 3, "restarts": 1, "repeated": 0, "damaged": 0}.items()
    first, second = starts(tmp_path, "worker-1")
    assert first == second
    assert [len(starts(tmp_path, task)) for task in ("chief-0", "ps-0", "worker-0")] == [1, 1, 1]


ELASTIC: dict[str, Any] = {
    "strategy": {"kind": "parameter_server", "workers": 2, "max_workers": 4, "ps": 1},
    "max_restarts": 1,
}


def test_elastic_worker_that_fails_too_often_is_not_restarted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gone")
    summary = supervise(tmp_path, ELASTIC, worker_1=["kill", "let=gone kill"], chief_0=["meet=gone step=3"])
    assert summary["restarts"] == 1
    assert len(starts(tmp_path, "worker-1")) == 2
    [chief] = starts(tmp_path, "chief-0")
    assert len(chief["cluster"]["worker"]) == 4, "an address for each worker that may join"
    assert not starts(tmp_path, "worker-2")


def test_training_ends_with_fewer_elastic_workers_than_min_workers(tmp_path: Path) -> None:
    config = {**ELASTIC, "strategy": {**ELASTIC["strategy"], "min_workers": 2}}
    with pytest.raises(MachineError, match="worker-1 was killed by SIGKILL, 2 times in a row"):
        supervise(tmp_path, config, worker_1=["kill"], chief_0=["serve"])


@pytest.mark.parametrize(
    ("chief", "ps", "restarted"),
    [
        pytest.param(
            ["context=5 restored=0 saved=4 step=6 let=up serve", "let=up restored=4 step=8"],
            ["meet=up kill", "meet=up serve"],
            {"chief-0", "ps-0"},
            id="ps",
        ),
        pytest.param(
            ["context=5 restored=0 saved=4 step=6 let=up kill", "restored=4 step=8"],
            ["meet=up serve"],
            {"chief-0"},
            id="chief",
        ),
    ],
)
def test_lost_ps_or_chief_is_replaced_at_its_address_while_the_other_tasks_continue(
    tmp_path: Path, chief: list[str], ps: list[str], restarted: set[str]
) -> None:
    os.mkfifo(tmp_path / "up")
    config = {"strategy": {**PARAMETER_SERVER["strategy"], "ps": 2}}
    summary = supervise(tmp_path, config, chief_0=chief, ps_0=ps)
    assert summary.items() >= {"steps": 8, "restarts": 1, "repeated": 2, "damaged": 0}.items()
    log = (tmp_path / "node.log").read_text()
    for task in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1"):
        assert log.count(f"started {task} as process") == (2 if task in restarted else 1)
    for task in restarted:
        first, second = starts(tmp_path, task)
        assert first["cluster"] == second["cluster"]
    # The new chief closes what the lost one has left on the tasks that continue.
    assert [start["stale"] for start in starts(tmp_path, "chief-0")] == ["", "5"]


@pytest.mark.parametrize("is_stalled", [False, True])
def test_all_tasks_are_restarted_at_new_addresses_if_replacing_a_task_is_not_enough(
    tmp_path: Path, is_stalled: bool
) -> None:
    if is_stalled:
        scripts = {"chief_0": ["restored=0 serve", "restored=0 step=2"]}
        summary = supervise(tmp_path, {**PARAMETER_SERVER, "heartbeat_seconds": 3}, 1, **scripts)
    else:
        for fifo in ("first", "second"):
            os.mkfifo(tmp_path / fifo)
        scripts = {
            "ps_0": ["meet=first kill", "meet=second kill", "serve"],
            "chief_0": ["context=5 let=first serve", "let=second serve", "step=2"],
        }
        summary = supervise(tmp_path, PARAMETER_SERVER, **scripts)
    assert (summary["steps"], summary["restarts"]) == (2, 1 if is_stalled else 2)
    first, *_, last = starts(tmp_path, "chief-0")
    for kind in ("chief", "ps", "worker"):
        assert set(first["cluster"][kind]).isdisjoint(last["cluster"][kind])
    assert last["stale"] == "", "the tasks that had contexts of earlier chiefs have ended"
    log = (tmp_path / "node.log").read_text()
    assert log.count("started worker-0 as process") == 2


@pytest.mark.parametrize("task", ["worker_0", "worker_1"])
def test_failure_of_a_synchronous_worker_restarts_all_workers(tmp_path: Path, task: str) -> None:
    os.mkfifo(tmp_path / "ready")
    scripts = {
        "worker_0": ["restored=0 saved=4 step=6 let=ready serve", "restored=4 step=8"],
        "worker_1": ["meet=ready serve", "serve"],
    }
    scripts[task][0] = scripts[task][0].replace("serve", "kill")
    summary = supervise(tmp_path, MULTI_WORKER, **scripts)
    assert summary.items() >= {"steps": 8, "restarts": 1, "repeated": 2, "damaged": 0}.items()


def test_failed_evaluator_is_restarted_alone_and_awaited(tmp_path: Path) -> None:
    summary = supervise(
        tmp_path, {**PARAMETER_SERVER, "evaluator": True}, evaluator_0=["kill", "exit=0"], chief_0=["step=3"]
    )
    assert summary["steps"] == 3
    assert len(starts(tmp_path, "evaluator-0")) <= 2


def test_sigterm_does_not_wait_for_the_evaluator(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chief")
    with pytest.raises(MachineError, match="SystemExit: 143"):
        supervise(
            tmp_path,
            {**PARAMETER_SERVER, "evaluator": True},
            chief_0=["step=3 name=chief"],
            evaluator_0=["outlive=chief stop serve"],
        )


@pytest.mark.parametrize(
    ("script", "how", "details"),
    [
        ("kill", "was killed by SIGKILL", None),
        ("exit=9", "ended with exit code 9", None),
        ("raise", "ended with exit code 1", "ValueError: no such luck"),
    ],
)
def test_task_that_fails_at_every_start_ends_the_training(
    tmp_path: Path, script: str, how: str, details: str | None
) -> None:
    with pytest.raises(MachineError) as raised:
        supervise(tmp_path, {**MULTI_WORKER, "max_restarts": 2}, worker_1=[script], worker_0=["serve"])
    assert raised.value.headline == f"training task worker-1 {how}, 3 times in a row without a new checkpoint"
    assert raised.value.remedy == f"see {tmp_path / 'logs' / 'worker-1.log'}"
    if details:
        assert raised.value.details == (details,)
    assert len(starts(tmp_path, "worker-1")) == 3


def test_first_failure_ends_the_training_if_max_restarts_is_0(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"training task worker-0 was killed by SIGKILL\n"):
        supervise(tmp_path, {**MULTI_WORKER, "max_restarts": 0}, worker_0=["kill"])


def test_new_checkpoint_resets_the_number_of_failures(tmp_path: Path) -> None:
    script = [f"restored={done} step={done + 1} saved={done + 1} kill" for done in range(4)]
    summary = supervise(tmp_path, {**MULTI_WORKER, "max_restarts": 1}, worker_0=[*script, "restored=4 step=5 saved=5"])
    assert summary.items() >= {"steps": 5, "restarts": 4, "repeated": 0, "damaged": 0}.items()


def test_reported_error_is_final(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the label is constant"):
        supervise(tmp_path, MULTI_WORKER, worker_1=["refuse"], worker_0=["serve"])
    assert len(starts(tmp_path, "worker-1")) == 1


def test_long_error_is_received_completely(tmp_path: Path) -> None:
    assert sum(map(len, scripted_cluster.DETAILS)) > 100_000
    with pytest.raises(InputError) as raised:
        supervise(tmp_path, MULTI_WORKER, worker_1=[f"refuse={len(scripted_cluster.DETAILS)}"], worker_0=["serve"])
    error = raised.value
    assert (error.exit_code, error.headline, error.remedy) == (2, "the label is constant", "choose another")
    assert error.details == scripted_cluster.DETAILS


def test_frozen_task_is_killed_and_its_cluster_continues(tmp_path: Path) -> None:
    summary = supervise(
        tmp_path,
        {**MULTI_WORKER, "heartbeat_seconds": 3},
        worker_1=["freeze", "serve"],
        worker_0=["restored=0 serve", "restored=0 step=2"],
    )
    assert (summary["steps"], summary["restarts"]) == (2, 1)
    log = (tmp_path / "node.log").read_text()
    assert log.count("worker-1 has sent no heartbeat for 3 s: it is killed") == 1


def test_cluster_without_progress_is_restarted(tmp_path: Path) -> None:
    summary = supervise(
        tmp_path, {**MULTI_WORKER, "heartbeat_seconds": 3}, 1, worker_0=["restored=0 serve", "restored=0 step=2"]
    )
    assert (summary["steps"], summary["restarts"]) == (2, 1)
    assert "no step for 3 s: worker-0 is killed" in (tmp_path / "node.log").read_text()


def test_damaged_checkpoints_are_counted_and_logged(tmp_path: Path) -> None:
    summary = supervise(tmp_path, MULTI_WORKER, worker_0=["damaged=step-9 restored=6 step=10"])
    assert summary["damaged"] == 1
    assert "checkpoint step-9 is damaged; the previous checkpoint is used" in (tmp_path / "node.log").read_text()
