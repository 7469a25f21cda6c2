"""The runner that shares work out to worker pools: each has a part in it, and nobody waits for a dead worker."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from beam_servers import Server, pool
from forked_command import ForkedCommand
from listening import listens_on_loopback

pytestmark = pytest.mark.both_lines


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("pools")
    with pool(folder / "one") as one, pool(folder / "two") as two:
        yield one, two


def start(task: str, folder: Path, pools: tuple[Server, Server]) -> ForkedCommand:
    folder.mkdir()
    return forked.start(task, ",".join(pool.address for pool in pools), folder)


def test_each_pool_has_a_part_in_the_work(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    before = [pool.workers_started for pool in pools]
    code, out, err = start("count", tmp_path / "work", pools).wait(120)
    assert code == 0, err
    record = json.loads(out.splitlines()[-1])
    assert record["squares"] == [number * number for number in range(100)]
    assert len(record["workers"]) == 2
    assert record["own"] not in record["workers"]
    assert [pool.workers_started - earlier for pool, earlier in zip(pools, before, strict=True)] == [1, 1]
    # They end with the job, though the pools do not.
    assert all(map(ends, record["workers"]))


def test_error_of_a_worker_keeps_its_words(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    code, _, err = start("raise", tmp_path / "work", pools).wait(120)
    assert code == 1
    assert "error[2]: seven was met" in err


def test_worker_that_is_killed_is_not_waited_for(tmp_path: Path, pools: tuple[Server, Server]) -> None:
    work = tmp_path / "work"
    process = start("wait", work, pools)
    try:
        while len(list(work.iterdir())) < 2:
            assert not process.has_ended(0.1)
        is_local = listens_on_loopback(process.pid)
        os.kill(int(next(work.iterdir()).name), signal.SIGKILL)
        code, _, err = process.wait(60)
    finally:
        process.kill()
    assert is_local
    assert code == 1
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
