"""A real Flink session cluster of two task managers gives equal outputs, and its processes may be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from tests.support.programs import engine_program
from tests.support.runs.command import Runs, command
from tests.support.runs.engine_runs import assert_equal, ran
from tests.support.servers.beam_servers import kill_starting_worker
from tests.support.servers.flink_cluster import JOB_SERVER, Cluster, flink_cluster, needs_engines
from tests.support.servers.forked_command import ForkedCommand

pytestmark = [pytest.mark.slow, pytest.mark.engine, needs_engines]

SECONDS = 300
SUM = str(sum(range(engine_program.ELEMENTS)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with flink_cluster(tmp_path_factory.mktemp("clusters") / "flink") as cluster:
        yield cluster


@pytest.fixture
def section(cluster: Cluster) -> dict[str, object]:
    """Return the section of the config."""
    return cluster.section


def start(section: dict[str, object], folder: Path) -> ForkedCommand:
    """Start a pipeline whose elements wait."""
    runtime = RuntimeConfig.model_validate({"engine": "flink", "flink": section})
    return engine_program.start(engines.beam_args(runtime), folder)


def await_that(process: ForkedCommand, is_so: Callable[[], object]) -> None:
    """Wait for a condition while a process runs."""
    while not is_so():
        assert not process.has_ended(0.1), process.wait(0)


def test_outputs_are_those_of_direct(section: dict[str, object], cluster: Cluster, tmp_path: Path) -> None:
    run_result = ran(tmp_path, "flink", "flink", {"flink": section})
    assert_equal(run_result, ran(tmp_path, "direct", "in_memory", {"direct": {"mode": "in_memory"}}))
    for node in ("ExampleGen", "StatisticsGen", "Transform"):
        [page] = run_result.ended.result["nodes"][node]["jobs"]
        assert page.startswith(f"http://{cluster.rest}/#/job/")
        assert cluster.flink.get(f"/jobs/{page.split('/')[-2]}")["state"] == "FINISHED"


def test_whole_pipeline_makes_the_same_model(taxi: Runs, section: dict[str, object], tmp_path: Path) -> None:
    fields = (f"runtime.flink.{name}={value}" for name, value in section.items())
    sets = [word for field in fields for word in ("--set", field)]
    ended = command("--local", "--json", "--engine", "flink", *sets, "--output", str(tmp_path))
    assert (ended.exit_code, ended.err) == (0, "")
    assert ended.result["verdict"] == "blessed"
    assert ended.result["metrics"] == pytest.approx(taxi.first.result["metrics"], abs=1e-3)


def test_job_that_loses_a_task_manager_is_submitted_again(
    section: dict[str, object], cluster: Cluster, tmp_path: Path
) -> None:
    process = start(section, tmp_path)
    await_that(process, lambda: engine_program.workers(tmp_path))
    cluster.kill_task_manager()
    cluster.start_task_manager()
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err
    assert "is lost, and is submitted again" in err


def test_job_that_loses_a_worker_is_submitted_again(section: dict[str, object], tmp_path: Path) -> None:
    process = start(section, tmp_path)
    await_that(process, lambda: engine_program.workers(tmp_path))
    os.kill(engine_program.workers(tmp_path)[0], signal.SIGKILL)
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err
    assert "is lost, and is submitted again" in err


def test_worker_that_is_killed_while_it_starts_hangs_no_job(
    section: dict[str, object], cluster: Cluster, tmp_path: Path
) -> None:
    process = start(section, tmp_path)
    kill_starting_worker(cluster.workers, process)
    (tmp_path / "go").touch()
    code, _, err = process.wait(SECONDS)
    assert (code, engine_program.result(tmp_path)) == (0, SUM), err
    assert "was killed by SIGKILL" in cluster.workers.log.read_text()


def test_job_of_a_killed_node_is_cancelled(section: dict[str, object], cluster: Cluster, tmp_path: Path) -> None:
    process = start(section, tmp_path)
    await_that(process, lambda: engine_program.workers(tmp_path))
    [job] = [running for running in cluster.flink.get("/jobs/overview")["jobs"] if running["state"] == "RUNNING"]
    guards = [child for child in psutil.Process(process.pid).children() if "flink_rest" in " ".join(child.cmdline())]
    process.kill()
    process.wait(SECONDS)
    assert not psutil.wait_procs(guards, SECONDS)[1]
    assert cluster.flink.get(f"/jobs/{job['jid']}")["state"] == "CANCELED"


def test_job_brings_no_classes_that_flink_has(section: dict[str, object], cluster: Cluster, tmp_path: Path) -> None:
    process = start(section, tmp_path)
    await_that(process, lambda: engine_program.workers(tmp_path))
    # The job manager and the task managers keep the files of a job while it runs.
    files = [path for path in (cluster.folder / "tmp").rglob("*") if path.is_file() and "blob" in str(path)]
    assert not [file for file in files if file.stat().st_size > JOB_SERVER.stat().st_size / 2]
    (tmp_path / "go").touch()
    assert process.wait(SECONDS)[0] == 0


def test_error_of_the_code_fails_the_node_at_once(section: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "raise").touch()
    code, _, err = start(section, tmp_path).wait(SECONDS)
    assert code == 1
    assert "this element cannot be processed" in err
    assert "submitted again" not in err


def test_job_server_from_a_jar_with_flink_inside(cluster: Cluster, tmp_path: Path) -> None:
    pool = cluster.workers.address
    section = {"job_server_jar": str(JOB_SERVER), "master": "[local]", "worker_pool": pool, "parallelism": 2}
    run_result = ran(tmp_path, "flink", "flink", {"flink": section})
    assert_equal(run_result, ran(tmp_path, "direct", "in_memory", {"direct": {"mode": "in_memory"}}))
