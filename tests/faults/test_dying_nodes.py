"""A node dies: the run reports the node and the cause, leaves no incomplete output, and --resume finishes it."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from pipeline.core.metadata.store import Store
from pipeline.core.records import RunResult
from tests.support.runs.toy_runs import run_toy


def states(result: RunResult) -> dict[str, str]:
    return {node.id: node.state for node in result.nodes}


def assert_clean(folder: Path, run: str, allowed: set[str]) -> None:
    """Check that no execution is open, and that the dead node's outputs and temporary files are removed."""
    executions = Store(folder / "metadata.db").executions(run)
    assert {execution.state for execution in executions} <= allowed
    assert not [path for path in (folder / "artifacts" / "Actor").rglob("*") if path.is_file() or path.name == ".temp"]


def assert_resumes(folder: Path, run: str) -> None:
    (folder / "Actor.script").unlink()
    result = run_toy(folder, resume=run)
    assert (result.run, result.state, result.exit_code) == (run, "done", 0)
    assert set(states(result).values()) == {"done"}
    store = Store(folder / "metadata.db")
    assert [execution.state for execution in store.executions(run)] == ["COMPLETE"] * 4
    attempts = [json.loads(line) for line in (folder / "logs" / run / "attempts.jsonl").read_text().splitlines()]
    # Successful nodes are not run a second time.
    assert [(attempt["node"], attempt["attempt"]) for attempt in attempts] == [
        ("Source", 1),
        ("Add", 1),
        ("Actor", 1),
        ("Actor", 2),
        ("Rows", 1),
    ]
    assert (folder / "logs" / run / "Actor.log").read_text().count("=== Actor, ") == 2


def kill_when_it_runs(pipe: Path, signum: signal.Signals, seen: list[int]) -> threading.Thread:
    """Send a signal to a waiting node as soon as it has written its process IDs into the pipe."""
    os.mkfifo(pipe)

    def kill() -> None:
        seen.extend(int(pid) for pid in pipe.read_text().split())
        os.kill(seen[0], signum)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_native_abort(tmp_path: Path):
    (tmp_path / "Actor.script").write_text("abort")
    result = run_toy(tmp_path)
    assert (result.state, result.exit_code) == ("failed", 1)
    assert states(result) == {"Source": "done", "Add": "done", "Actor": "failed", "Rows": "not run"}
    assert result.error is not None
    assert result.error.headline == "Actor was killed by SIGABRT"
    assert "--resume" in result.error.remedy
    assert result.nodes[2].log == tmp_path / "logs" / result.run / "Actor.log"
    assert_clean(tmp_path, result.run, {"COMPLETE", "CANCELED"})
    assert_resumes(tmp_path, result.run)


def test_kill_from_outside_takes_what_the_node_has_started_along(tmp_path: Path):
    (tmp_path / "Actor.script").write_text(f"wait {tmp_path / 'pipe'}")
    pids: list[int] = []
    killer = kill_when_it_runs(tmp_path / "pipe", signal.SIGKILL, pids)
    result = run_toy(tmp_path)
    killer.join()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.error is not None
    assert result.error.headline == "Actor was killed by SIGKILL (the kernel does this when memory runs out)"
    # Figures were recorded while the node ran.
    assert result.nodes[2].peak_memory_mb > 0
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)
    assert_clean(tmp_path, result.run, {"COMPLETE", "CANCELED"})
    assert_resumes(tmp_path, result.run)


def test_dying_node_does_not_affect_parallel_nodes(tmp_path: Path):
    os.mkfifo(tmp_path / "right.pipe")
    (tmp_path / "Left.script").write_text(f"wait {tmp_path / 'left.pipe'}")
    (tmp_path / "Right.script").write_text(f"meet {tmp_path / 'right.pipe'}")
    killed = threading.Event()
    os.mkfifo(tmp_path / "left.pipe")

    def kill_left_then_let_right_go() -> None:
        with (tmp_path / "right.pipe").open("w"):
            pid = int((tmp_path / "left.pipe").read_text().split()[0])
            process = psutil.Process(pid)
            os.kill(pid, signal.SIGKILL)
            process.wait()
            killed.set()

    thread = threading.Thread(target=kill_left_then_let_right_go, daemon=True)
    thread.start()
    result = run_toy(tmp_path, "pair", parallel=2)
    thread.join()
    assert killed.is_set()
    assert states(result) == {"Source": "done", "Left": "failed", "Right": "done"}


@pytest.mark.parametrize(
    ("script", "exit_code", "state", "headline", "details"),
    [
        ("raise", 1, "failed", "Actor failed: ValueError: no such luck", ()),
        ("exit", 1, "failed", "Actor failed: SystemExit: 3", ()),
        ("input", 2, "failed", "trips.csv, row 7: expected 18 fields, received 17", ("3 more",)),
        ("gate", 3, "rejected", "too many gaps", ("a", "b")),
    ],
)
def test_error_is_reported_once_with_its_exit_code(
    tmp_path: Path, script: str, exit_code: int, state: str, headline: str, details: tuple[str, ...]
):
    (tmp_path / "Actor.script").write_text(script)
    result = run_toy(tmp_path)
    assert (result.state, result.exit_code) == (state, exit_code)
    assert result.error is not None
    assert (result.error.headline, result.error.details) == (headline, details)
    assert result.nodes[2].error == result.error
    assert "Traceback" in (tmp_path / "logs" / result.run / "Actor.log").read_text()
    assert_clean(tmp_path, result.run, {"COMPLETE", "FAILED", "CANCELED"})
