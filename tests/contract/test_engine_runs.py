"""Every engine that runs without a cluster gives the same data as the in-memory engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.runs.engine_runs import Ran, assert_equal, ran
from tests.support.servers.beam_servers import Server, job_service, pool

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]


@dataclass(frozen=True)
class Beam:
    """Beam's servers on this machine."""

    job_service: Server
    pools: tuple[Server, Server]


@pytest.fixture(scope="module")
def beam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beam]:
    """Yield a job service and two worker pools."""
    folder = tmp_path_factory.mktemp("beam")
    with contextlib.ExitStack() as servers:
        address, two = (servers.enter_context(pool(folder / name)) for name in ("one", "two"))
        yield Beam(servers.enter_context(job_service(folder / "service.log")), (address, two))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def in_memory(folder: Path) -> Ran:
    """Return the run in memory, the reference for all other engines."""
    return ran(folder, "direct", "in_memory", {"direct": {"mode": "in_memory"}})


@pytest.mark.slow
def test_two_processes_of_beams_own(folder: Path, in_memory: Ran) -> None:
    run_result = ran(folder, "direct", "processes", {"direct": {"mode": "multi_processing", "workers": 2}})
    assert run_result.ended.result["beam"] == [
        "Beam: direct, on this machine, 2 worker processes for each node, as runtime.direct.mode says",
        "Beam: ExampleGen, StatisticsGen, Transform and Evaluator in 2 forked workers",
    ]
    assert_equal(run_result, in_memory)


def test_job_service_with_loopback_workers(folder: Path, in_memory: Ran, beam: Beam) -> None:
    address = beam.job_service.address
    run_result = ran(folder, "portable", "loopback", {"portable": {"job_endpoint": address}})
    assert run_result.ended.result["beam"] == [
        f"Beam: portable, job service {address}, LOOPBACK: workers in each node's own process"
    ]
    assert_equal(run_result, in_memory)


@pytest.mark.slow
def test_job_service_with_a_pool(folder: Path, in_memory: Ran, beam: Beam) -> None:
    before = [pool.workers_started for pool in beam.pools]
    section = {"job_endpoint": beam.job_service.address, "worker_pool": beam.pools[1].address}
    elsewhere = {"artifacts": str(folder / "elsewhere")}
    assert_equal(ran(folder, "portable", "pool", {"portable": section, **elsewhere}), in_memory)
    started = [pool.workers_started - earlier for pool, earlier in zip(beam.pools, before, strict=True)]
    assert started[0] == 0
    assert started[1] >= 3, "ExampleGen, StatisticsGen and Transform have had one each"
