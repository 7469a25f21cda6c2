"""A lost job is submitted again, a failed one is not, and the job of a node that has ended is cancelled."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import engine_program
import pytest
from apache_beam.portability.api import beam_job_api_pb2
from fake_flink import FakeFlink, fake_flink
from recording_job_service import Recorder, names, serve

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from pipeline.orchestration.engines import flink_rest, job_api

SECONDS = 120
LOST = ("FAILED", "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id a timed out.")
OF_THE_CODE = ("FAILED", "Error received from SDK harness: Traceback (most recent call last):\n ValueError: no")
CANCELLED = ("CANCELLED", "")


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as fake:
        yield fake


@contextlib.contextmanager
def job_server(record: Path, *ends: tuple[str, str], on_run: Callable[[str], None] | None = None) -> Iterator[str]:
    """A job server whose jobs end so; gives its address."""
    record.mkdir()
    recorder = Recorder(record, ends, on_run)
    server = serve(recorder)
    yield recorder.address
    server.stop(0).wait()


def run(folder: Path, engine: str, **section: Any) -> tuple[int, str]:
    """Runs a pipeline on an engine; its exit code, and what it has logged."""
    runtime = RuntimeConfig.model_validate({"engine": engine, engine: section})
    code, _, err = engine_program.start(engines.beam_args(runtime), folder / "node").wait(SECONDS)
    return code, err


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_lost_job_is_submitted_again_under_another_name(tmp_path: Path, engine: str) -> None:
    with job_server(tmp_path / "record", LOST) as address:
        code, err = run(tmp_path, engine, job_endpoint=address)
    assert code == 0, err
    first, second = names(tmp_path / "record")
    assert re.fullmatch(r"test-node-Node-[0-9a-f]{4}-1", first)
    assert second == first[:-1] + "2"
    assert f"job {first} is lost, and is submitted again: " in err
    assert "Heartbeat of TaskManager" in err


@pytest.mark.parametrize(
    ("ends", "restarts", "jobs"),
    [((LOST, LOST, LOST), 1, 2), ((LOST,), 0, 1), ((OF_THE_CODE,), 2, 1), ((CANCELLED,), 2, 1)],
)
def test_other_jobs_fail_the_node(tmp_path: Path, ends: tuple[tuple[str, str], ...], restarts: int, jobs: int) -> None:
    with job_server(tmp_path / "record", *ends) as address:
        code, err = run(tmp_path, "flink", job_endpoint=address, job_restarts=restarts)
    assert code == 1
    assert (ends[0][1] or "CANCELLED") in err
    assert len(names(tmp_path / "record")) == jobs


def guard(flink: FakeFlink, name: str) -> subprocess.Popen[str]:
    """The process that watches over a job."""
    command = [sys.executable, "-E", "-S", flink_rest.__file__, flink.address, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_guard_cancels_the_job_of_a_node_that_has_ended(flink: FakeFlink) -> None:
    flink.jobs = {"another": "RUNNING", "mine": "RUNNING"}
    _, err = guard(flink, "mine").communicate(timeout=SECONDS)
    assert flink.jobs == {"another": "RUNNING", "mine": "CANCELED"}
    assert f"job mine: http://{flink.address}/#/job/enim/overview\n" in err
    assert "job mine is cancelled" in err


def test_guard_waits_for_a_job_that_is_being_submitted(flink: FakeFlink) -> None:
    with guard(flink, "mine") as process:
        process.stdin.close()
        assert flink.listed.wait(SECONDS)
        flink.jobs["mine"] = "RUNNING"
        assert flink.cancelled.wait(SECONDS)
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize(("lines", "cancelled"), [("{}\n", ["a job"]), ("{}\n\n", []), ("", [])])
def test_guard_of_another_engine_cancels_by_the_job_api(tmp_path: Path, lines: str, cancelled: list[str]) -> None:
    recorder = Recorder(tmp_path)
    server = serve(recorder)
    request = beam_job_api_pb2.CancelJobRequest(job_id="a job").SerializeToString().hex()
    command = [sys.executable, "-E", job_api.__file__, recorder.address]
    subprocess.run(command, input=lines.format(request), text=True, check=True, timeout=SECONDS)
    assert recorder.cancelled == cancelled
    server.stop(0).wait()


@pytest.mark.parametrize(("state", "line"), [("RUNNING", "\n"), ("FINISHED", "")])
def test_guard_leaves_a_job_that_has_ended(flink: FakeFlink, state: str, line: str) -> None:
    flink.jobs = {"mine": state}
    process = guard(flink, "mine")
    process.communicate(line, timeout=SECONDS)
    assert process.returncode == 0
    assert flink.jobs == {"mine": state}


def test_lost_job_is_cancelled_before_the_next(tmp_path: Path, flink: FakeFlink) -> None:
    record = tmp_path / "record"
    with job_server(record, LOST, on_run=lambda name: flink.jobs.update({name: "RUNNING"})) as address:
        code, err = run(tmp_path, "flink", job_endpoint=address, rest=flink.address)
    assert code == 0, err
    first, second = names(record)
    # The second one is done for the job server; nobody has to cancel it.
    assert flink.jobs == {first: "CANCELED", second: "RUNNING"}
