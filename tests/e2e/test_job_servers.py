"""Real Prism and Spark give equal outputs, and a worker or the node may be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from tests.support.programs import engine_program
from tests.support.runs.engine_runs import Ran, assert_equal, ran
from tests.support.servers.beam_servers import Server, kill_starting_worker, pool
from tests.support.servers.flink_cluster import needs_engines
from tests.support.servers.forked_command import ForkedCommand
from tests.support.servers.job_servers import needs_prism, prism, spark

pytestmark = pytest.mark.engine

SECONDS = 300
SUM = str(sum(range(engine_program.ELEMENTS)))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pool(tmp_path_factory.mktemp("pools") / "pool") as server:
        yield server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("portable", marks=needs_prism, id="prism"),
        pytest.param("spark", marks=[pytest.mark.slow, needs_engines], id="spark"),
    ],
)
def runtime(
    request: pytest.FixtureRequest, workers: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Yield the `runtime` section, with the engine's settings."""
    engine = request.param
    folder = tmp_path_factory.mktemp("engines") / engine
    with (prism if engine == "portable" else spark)(folder) as address:
        yield {"engine": engine, engine: {"job_endpoint": address, "worker_pool": workers.address}}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("direct"), "direct", "in_memory", {"direct": {"mode": "in_memory"}})


def start(runtime: dict[str, Any], folder: Path) -> ForkedCommand:
    """Start a pipeline whose elements wait; return when an element waits."""
    process = engine_program.start(engines.beam_args(RuntimeConfig.model_validate(runtime)), folder)
    while not engine_program.workers(folder):
        assert not process.has_ended(0.1), process.wait(0)
    return process


def test_outputs_are_those_of_direct(runtime: dict[str, Any], direct: Ran, tmp_path: Path) -> None:
    engine = runtime["engine"]
    assert_equal(ran(tmp_path, engine, engine, {engine: runtime[engine]}), direct)


def test_job_that_loses_a_worker_ends_well(runtime: dict[str, Any], tmp_path: Path) -> None:
    process = start(runtime, tmp_path)
    os.kill(engine_program.workers(tmp_path)[0], signal.SIGKILL)
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err


def test_worker_that_is_killed_while_it_starts_hangs_no_job(
    runtime: dict[str, Any], workers: Server, tmp_path: Path
) -> None:
    process = engine_program.start(engines.beam_args(RuntimeConfig.model_validate(runtime)), tmp_path)
    kill_starting_worker(workers, process)
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err
    assert "was killed by SIGKILL" in workers.log.read_text()


def test_job_that_loses_its_executors_ends_well(runtime: dict[str, Any], tmp_path: Path) -> None:
    if runtime["engine"] != "spark":
        pytest.skip("Prism is one process")
    process = start(runtime, tmp_path)
    programs = psutil.Process().children(recursive=True)
    executors = [process for process in programs if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())]
    assert executors
    for executor in executors:
        executor.kill()
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err


def test_job_of_a_killed_node_ends(runtime: dict[str, Any], tmp_path: Path) -> None:
    process = start(runtime, tmp_path)
    working = [psutil.Process(pid) for pid in engine_program.workers(tmp_path)]
    process.kill()
    process.wait(SECONDS)
    assert not psutil.wait_procs(working, 60)[1]
