"""The run's own process is interrupted or killed: no child outlives it, and it can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.core.metadata.store import Store
from tests.support.runs.toy_runs import run_toy

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "tests" / "support" / "runs" / "toy_runs.py")]


class WaitingRun:
    """A run in a new process group, whose third node has started and waits."""

    def __init__(self, folder: Path) -> None:
        (folder / "Actor.script").write_text(f"wait {folder / 'pipe'}")
        os.mkfifo(folder / "pipe")
        self.process = start_run(folder, {"screen": "plain"})
        node, below = (folder / "pipe").read_text().split()
        self.family = [psutil.Process(int(below)), *psutil.Process(self.process.pid).children(recursive=True)]
        assert int(node) in [process.pid for process in self.family]

    def fork_server(self) -> psutil.Process:
        """Return the process that forks the nodes."""
        children = psutil.Process(self.process.pid).children()
        [server] = [child for child in children if "forkserver" in " ".join(child.cmdline())]
        return server

    def end_with(self, signum: signal.Signals) -> tuple[int, str]:
        """Send a signal to the run's process alone; return the exit code and the output."""
        self.process.send_signal(signum)
        returned, out, _ = self.wait()
        return returned, out

    def wait(self) -> tuple[int, str, str]:
        """Wait for the run and check that its children have ended; return exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=120)
        _, alive = psutil.wait_procs(self.family, timeout=10)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        return self.process.returncode, out, err


def start_run(folder: Path, options: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, str(folder), "chain", json.dumps(options)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def record_of(folder: Path) -> dict[str, Any]:
    [file] = folder.glob("logs/*/run.json")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def run_states(folder: Path) -> tuple[str, list[str]]:
    store = Store(folder / "metadata.db")
    [run] = store.runs("toy")
    return run.name, [execution.state for execution in store.executions(run.name)]


def test_ctrl_c_ends_the_children_and_keeps_metadata_consistent(tmp_path: Path):
    returned, out = WaitingRun(tmp_path).end_with(signal.SIGINT)
    assert returned == 130
    assert "Actor: interrupted" in out
    run, states = run_states(tmp_path)
    assert states == ["COMPLETE", "COMPLETE", "CANCELED"]
    assert f"--resume {run}" in out
    record = json.loads((tmp_path / "logs" / run / "run.json").read_text())
    assert (record["state"], record["nodes"]["Rows"]["state"]) == ("interrupted", "waiting")


def test_ctrl_c_before_the_first_node_waits_for_no_imports(tmp_path: Path):
    process = start_run(tmp_path, {})
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run ")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_sigterm_to_the_process_group_before_the_first_node_closes_the_run(tmp_path: Path):
    process = start_run(tmp_path, {})
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run ")
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "")
    assert record_of(tmp_path)["state"] == "interrupted"
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.slow
def test_sigterm_to_the_process_group_interrupts_the_run_and_closes_it(tmp_path: Path):
    waiting = WaitingRun(tmp_path)
    os.killpg(waiting.process.pid, signal.SIGTERM)
    returned, out, err = waiting.wait()
    assert (returned, err) == (143, "")
    assert "Actor: interrupted" in out
    content = record_of(tmp_path)
    assert (content["state"], content["nodes"]["Actor"]["state"]) == ("interrupted", "interrupted")
    assert run_states(tmp_path) == (content["run"], ["COMPLETE", "COMPLETE", "CANCELED"])


@pytest.mark.slow
def test_killed_fork_server_fails_the_run_with_a_headline(tmp_path: Path):
    waiting = WaitingRun(tmp_path)
    waiting.fork_server().kill()
    returned, out, err = waiting.wait()
    assert returned == 1
    assert "Traceback" not in out + err
    content = record_of(tmp_path)
    assert (content["state"], content["nodes"]["Actor"]["state"]) == ("failed", "failed")
    assert content["error"]["headline"].startswith("Actor ended without a result")
    assert content["error"]["headline"] in out + err
    # A new fork server starts; the killed node's files are cleaned up.
    assert run_states(tmp_path) == (content["run"], ["COMPLETE", "COMPLETE", "CANCELED"])


def signal_this_process(pipe: Path, signums: list[signal.Signals], sent: list[int]) -> threading.Thread:
    """Send a signal to the run, here in the test's process, once its node waits."""
    os.mkfifo(pipe)

    def interrupt() -> None:
        sent.extend(int(pid) for pid in pipe.read_text().split())
        for signum in signums:
            os.kill(os.getpid(), signum)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("grace", "signums", "exit_code"),
    [
        pytest.param(0.1, [signal.SIGTERM], 143, id="once-then-the-grace-is-over"),
        pytest.param(600.0, [signal.SIGINT, signal.SIGTERM], 130, id="twice-without-grace"),
    ],
)
def test_node_that_will_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float, signums: list[signal.Signals], exit_code: int
):
    monkeypatch.setattr("pipeline.orchestration.local.scheduler._GRACE_SECONDS", grace)
    (tmp_path / "Actor.script").write_text(f"refuse {tmp_path / 'pipe'}")
    pids: list[int] = []
    thread = signal_this_process(tmp_path / "pipe", signums, pids)
    result = run_toy(tmp_path)
    thread.join()
    assert (result.state, result.exit_code) == ("interrupted", exit_code)
    assert [node.state for node in result.nodes] == ["done", "done", "interrupted", "not run"]
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_killed_run_has_no_orphan_processes_and_can_be_resumed(tmp_path: Path):
    returned, _ = WaitingRun(tmp_path).end_with(signal.SIGKILL)
    assert returned == -signal.SIGKILL
    run, states = run_states(tmp_path)
    # The run was killed before it could close the execution: the resumed run closes it.
    assert states == ["COMPLETE", "COMPLETE", "RUNNING"]
    (tmp_path / "Actor.script").unlink()
    result = run_toy(tmp_path, resume=run)
    assert result.state == "done"
    assert run_states(tmp_path) == (run, ["COMPLETE"] * 4)
