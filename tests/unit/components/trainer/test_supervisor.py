"""Who is started again when a task dies, at which addresses, how often, and what is said in the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import clusters
import pytest
from children import in_child
from clusters import starts

from components.errors import InputError, MachineError

IN_STEP = {"strategy": {"kind": "multi_worker", "workers": 2}}
SERVED = {"strategy": {"kind": "parameter_server", "workers": 2, "ps": 1}}


def supervise(
    folder: Path, training: dict[str, Any], stalled_heartbeats: int = 10, **scripts: list[str]
) -> dict[str, int]:
    named = {name.replace("_", "-"): script for name, script in scripts.items()}
    told: dict[str, int] = in_child(
        folder / "node.log", clusters.supervise, folder, training, named, stalled_heartbeats
    )
    return told


def test_a_cluster_that_nothing_happens_to(tmp_path: Path) -> None:
    told = supervise(tmp_path, SERVED, chief_0=["restored=0 step=5 saved=5 step=7 saved=7"])
    assert told == {"steps": 7, "restarts": 0, "repeated": 0, "damaged": 0}
    [chief] = starts(tmp_path, "chief-0")
    assert chief["task"] == {"type": "chief", "index": 0}
    assert {kind: len(each) for kind, each in chief["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 1}
    addresses = [address for each in chief["cluster"].values() for address in each]
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "chief-0.log", "ps-0.log", "worker-0.log", "worker-1.log"
    ]  # fmt: skip


def test_a_worker_beside_a_ps_comes_back_alone_at_its_address(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "back")
    told = supervise(tmp_path, SERVED, worker_1=["kill", "let=back serve"], chief_0=["meet=back step=3"])
    assert told == {"steps": 3, "restarts": 1, "repeated": 0, "damaged": 0}
    first, second = starts(tmp_path, "worker-1")
    assert first == second
    assert [len(starts(tmp_path, task)) for task in ("chief-0", "ps-0", "worker-0")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("chief", "ps"),
    [
        pytest.param("restored=0 saved=4 step=6 let=up serve", "meet=up kill", id="ps"),
        pytest.param("restored=0 saved=4 step=6 let=up kill", "meet=up serve", id="chief"),
    ],
)
def test_with_a_chief_or_a_ps_all_start_again_elsewhere(tmp_path: Path, chief: str, ps: str) -> None:
    os.mkfifo(tmp_path / "up")
    told = supervise(
        tmp_path, SERVED, chief_0=[chief, "let=up restored=4 step=8"], ps_0=[ps, "meet=up serve"], worker_0=["serve"]
    )
    assert told == {"steps": 8, "restarts": 1, "repeated": 2, "damaged": 0}
    for name in ("chief-0", "ps-0"):
        first, second = starts(tmp_path, name)
        assert set(first["cluster"]["worker"]).isdisjoint(second["cluster"]["worker"])


@pytest.mark.parametrize("task", ["worker_0", "worker_1"])
def test_in_step_all_start_again_with_any(tmp_path: Path, task: str) -> None:
    os.mkfifo(tmp_path / "ready")
    scripts = {
        "worker_0": ["restored=0 saved=4 step=6 let=ready serve", "restored=4 step=8"],
        "worker_1": ["meet=ready serve", "serve"],
    }
    scripts[task][0] = scripts[task][0].replace("serve", "kill")
    told = supervise(tmp_path, IN_STEP, **scripts)
    assert told == {"steps": 8, "restarts": 1, "repeated": 2, "damaged": 0}


def test_an_evaluator_comes_back_alone_and_is_waited_for(tmp_path: Path) -> None:
    told = supervise(tmp_path, {**SERVED, "evaluator": True}, evaluator_0=["kill", "exit=0"], chief_0=["step=3"])
    assert told["steps"] == 3
    assert len(starts(tmp_path, "evaluator-0")) <= 2


def test_who_is_asked_to_end_does_not_wait_for_the_evaluator(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chief")
    with pytest.raises(MachineError, match="SystemExit: 143"):
        supervise(
            tmp_path,
            {**SERVED, "evaluator": True},
            chief_0=["step=3 name=chief"],
            evaluator_0=["outlive=chief stop serve"],
        )


@pytest.mark.parametrize(
    ("script", "how", "words"),
    [
        ("kill", "was killed by SIGKILL", None),
        ("exit=9", "ended with exit code 9", None),
        ("raise", "ended with exit code 1", "ValueError: no such luck"),
    ],
)
def test_a_task_that_always_dies_ends_it(tmp_path: Path, script: str, how: str, words: str | None) -> None:
    with pytest.raises(MachineError) as raised:
        supervise(tmp_path, {**IN_STEP, "max_restarts": 2}, worker_1=[script], worker_0=["serve"])
    assert raised.value.headline == f"training task worker-1 {how}, 3 times in a row without a new checkpoint"
    assert raised.value.remedy == f"see {tmp_path / 'logs' / 'worker-1.log'}"
    if words:
        assert raised.value.details == (words,)
    assert len(starts(tmp_path, "worker-1")) == 3


def test_without_restarts_the_first_death_ends_it(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"training task worker-0 was killed by SIGKILL\n"):
        supervise(tmp_path, {**IN_STEP, "max_restarts": 0}, worker_0=["kill"])


def test_a_new_checkpoint_wipes_the_slate(tmp_path: Path) -> None:
    script = [f"restored={done} step={done + 1} saved={done + 1} kill" for done in range(4)]
    told = supervise(tmp_path, {**IN_STEP, "max_restarts": 1}, worker_0=[*script, "restored=4 step=5 saved=5"])
    assert told == {"steps": 5, "restarts": 4, "repeated": 0, "damaged": 0}


def test_a_told_error_is_final(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the label is constant"):
        supervise(tmp_path, IN_STEP, worker_1=["refuse"], worker_0=["serve"])
    assert len(starts(tmp_path, "worker-1")) == 1


def test_a_told_error_arrives_whole_however_long(tmp_path: Path) -> None:
    assert sum(map(len, clusters.DETAILS)) > 100_000
    with pytest.raises(InputError) as raised:
        supervise(tmp_path, IN_STEP, worker_1=[f"refuse={len(clusters.DETAILS)}"], worker_0=["serve"])
    told = raised.value
    assert (told.exit_code, told.headline, told.remedy) == (2, "the label is constant", "choose another")
    assert told.details == clusters.DETAILS


def test_a_frozen_task_is_killed_and_its_cluster_goes_on(tmp_path: Path) -> None:
    told = supervise(
        tmp_path,
        {**IN_STEP, "heartbeat_seconds": 3},
        worker_1=["freeze", "serve"],
        worker_0=["restored=0 serve", "restored=0 step=2"],
    )
    assert (told["steps"], told["restarts"]) == (2, 1)
    log = (tmp_path / "node.log").read_text()
    assert log.count("worker-1 has shown no sign of life for 3 s: it is killed") == 1


def test_a_cluster_without_a_step_is_started_again(tmp_path: Path) -> None:
    told = supervise(
        tmp_path, {**IN_STEP, "heartbeat_seconds": 3}, 1, worker_0=["restored=0 serve", "restored=0 step=2"]
    )
    assert (told["steps"], told["restarts"]) == (2, 1)
    assert "no step for 3 s: worker-0 is killed" in (tmp_path / "node.log").read_text()


def test_damaged_checkpoints_are_counted_and_told(tmp_path: Path) -> None:
    told = supervise(tmp_path, IN_STEP, worker_0=["damaged=step-9 restored=6 step=10"])
    assert told["damaged"] == 1
    assert "checkpoint step-9 is damaged; the one before it is used" in (tmp_path / "node.log").read_text()
