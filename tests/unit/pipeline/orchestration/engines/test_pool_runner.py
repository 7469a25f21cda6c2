"""The runner that shares work out to worker pools: each has a part in it, and nobody waits for a dead worker."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from beam_servers import Server, served

ROOT = Path(__file__).parents[5]
pytestmark = pytest.mark.both_lines


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("pools")
    with served("pool", folder / "one.log") as one, served("pool", folder / "two.log") as two:
        yield one, two


def start(task: str, folder: Path, pools: tuple[Server, Server]) -> subprocess.Popen[str]:
    # From a module of its own: a worker finds the functions of a pipeline by their modules' names.
    code = f"import forked; forked.main({task!r}, '{','.join(pool.address for pool in pools)}', {str(folder)!r})"
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"},
    )


def test_each_pool_has_a_part_in_the_work(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    before = [pool.workers_started for pool in pools]
    process = start("count", tmp_path / "work", pools)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    record = json.loads(out.splitlines()[-1])
    assert record["squares"] == [number * number for number in range(100)]
    assert len(record["workers"]) == 2
    assert record["own"] not in record["workers"]
    assert [pool.workers_started - earlier for pool, earlier in zip(pools, before, strict=True)] == [1, 1]
    # They end with the job, though the pools do not.
    assert all(map(ends, record["workers"]))


def test_error_of_a_worker_keeps_its_words(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    process = start("raise", tmp_path / "work", pools)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "error[2]: seven was met" in err


def test_worker_that_is_killed_is_not_waited_for(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    work = tmp_path / "work"
    process = start("wait", work, pools)
    try:
        while process.poll() is None and len(list(work.iterdir())) < 2:
            psutil.wait_procs([psutil.Process(process.pid)], timeout=0.1)
        assert process.poll() is None
        os.kill(int(next(work.iterdir()).name), signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert any(f"a worker of the pool {pool.address} has ended" in err for pool in pools)


def ends(process: int) -> bool:
    # A pool does not wait for its workers, so one that has ended may still be there, in name.
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ended], [], [], 30)[0])
    finally:
        os.close(ended)
