"""Tests for Beam workers that are forked from a process with all imports: results, errors and killed processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.programs.forked import start
from tests.support.servers.listening import listens_on_loopback


def test_workers_share_the_work_and_end_with_it(tmp_path: Path) -> None:
    code, out, err = start("count", "2", tmp_path).wait(120)
    assert code == 0, err
    record = json.loads(out.splitlines()[-1])
    assert record["squares"] == [number * number for number in range(100)]
    assert len(record["workers"]) == 2
    assert record["own"] not in record["workers"]
    assert not any(psutil.pid_exists(worker) for worker in record["workers"])


def test_error_of_a_worker_is_reported_with_its_text(tmp_path: Path) -> None:
    code, _, err = start("raise", "2", tmp_path).wait(120)
    assert code == 1
    assert "error[2]: seven was met" in err


@pytest.mark.extended
@pytest.mark.parametrize(
    ("whom", "message"),
    [
        ("worker", "a worker of Beam was killed by SIGKILL"),
        ("fork_server", "the process that forks Beam's workers was killed"),
        ("parent", None),
    ],
)
def test_workers_end_if_a_process_is_killed(tmp_path: Path, whom: str, message: str | None) -> None:
    process = start("wait", "2", tmp_path)
    try:
        while len(list(tmp_path.iterdir())) < 2:
            assert not process.has_ended(0.1)
        is_local = listens_on_loopback(process.pid)
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) == 3  # The fork server and two workers.
        (fork_server,) = psutil.Process(process.pid).children()
        victims = {"worker": int(next(tmp_path.iterdir()).name), "fork_server": fork_server.pid, "parent": process.pid}
        os.kill(victims[whom], signal.SIGKILL)
        code, _, err = process.wait(60)
    finally:
        process.kill()
    assert is_local
    assert code == (-signal.SIGKILL if message is None else 1)
    assert ("was killed" in err) == (message is not None)
    assert (message or "") in err
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert not alive
