"""Tests for the runner of jobs: it repeats lost jobs, reports failed jobs, and cancels jobs when their node ends."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from pipeline.orchestration.engines import flink_rest, job_api
from pipeline.orchestration.engines.job_runner import is_lost
from tests.support.fakes.fake_flink import FakeFlink, fake_flink
from tests.support.fakes.recording_job_service import Recorder, names, serve
from tests.support.programs import engine_program
from tests.support.servers.flink_cluster import free_ports

SECONDS = 120
LOST = ("FAILED", "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id a timed out.")
CODE_FAILURE = ("FAILED", "Error received from SDK harness: Traceback (most recent call last):\n ValueError: no")
CANCELLED = ("CANCELLED", "")
CONFIG_FAILURE = (
    "FAILED",
    "java.io.IOException: Insufficient number of network buffers: required 1, but only 0 available.",
)
_GRPC = "org.apache.beam.vendor.grpc.v1p60p1.io.grpc.StatusRuntimeException"
_NETTY = "org.apache.flink.runtime.io.network.netty.exception"
# The messages were recorded from Flink 1.19.3 and Spark 3.5.9 with Beam's job servers 2.62, and from Prism 2.74.
MESSAGES = {
    "a Python worker of Flink was killed": f"{_GRPC}: {_GRPC}: CANCELLED: client cancelled",
    "a Python worker was killed as it started": "java.lang.RuntimeException: worker 2-1 of localhost:38881 was killed "
    "by SIGKILL before it connected; see the log of the worker pool",
    "a Python worker of Prism was killed": "bundle inst003 stage-009 failed:SDK worker disconnected: "
    "worker[job-001[job]_ref_Environment_default_environment_1], 2 active instructions, error: context canceled",
    "there is no worker pool": "java.net.ConnectException: java.net.ConnectException: finishConnect(..) failed: "
    "Connection refused",
    "a task manager was killed": f"{_NETTY}.RemoteTransportException: Connection unexpectedly closed by remote task "
    "manager 'localhost/127.0.0.1:44821 [ localhost:40365-d7f62e ] '. This might indicate that the remote task manager "
    "was lost.",
    "the job manager was killed": "java.net.ConnectException: Connection refused",
    "Spark reached no pool four times": "org.apache.spark.SparkException: Job aborted due to stage failure: Task "
    "1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 4) (localhost executor 0): "
    "org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.UncheckedExecutionException: "
    f"{_GRPC}: UNAVAILABLE: io exception",
}
FINAL = {
    "too few network buffers": CONFIG_FAILURE[1],
    "too few slots": "java.util.concurrent.TimeoutException: Timeout has occurred: 10000 ms",
}


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as fake:
        yield fake


@contextlib.contextmanager
def job_server(record: Path, *ends: tuple[str, str], on_run: Callable[[str], None] | None = None) -> Iterator[str]:
    """Run a fake job server, and yield its address.

    Args:
      record: Folder for the server's records of the jobs.
      ends: Final states and messages of the first jobs. Further jobs succeed.
      on_run: Function that is called with the name of a job when the job starts.
    """
    record.mkdir()
    recorder = Recorder(record, ends, on_run)
    server = serve(recorder)
    yield recorder.address
    server.stop(0).wait()


def run_pipeline(folder: Path, engine: str, **section: Any) -> tuple[int, str]:
    """Run a pipeline on an engine, and return its exit code and its log."""
    runtime = RuntimeConfig.model_validate({"engine": engine, engine: section})
    code, _, err = engine_program.start(engines.beam_args(runtime), folder / "node").wait(SECONDS)
    return code, err


@pytest.mark.parametrize("engine", ["flink", pytest.param("spark", marks=pytest.mark.extended)])
def test_lost_job_is_submitted_again_with_another_name(tmp_path: Path, engine: str) -> None:
    with job_server(tmp_path / "record", LOST) as address:
        code, err = run_pipeline(tmp_path, engine, job_endpoint=address)
    assert code == 0, err
    first, second = names(tmp_path / "record")
    assert re.fullmatch(r"test-node-Node-[0-9a-f]{4}-1", first)
    assert second == first[:-1] + "2"
    assert f"job {first} is lost, and is submitted again: " in err
    assert "Heartbeat of TaskManager" in err


@pytest.mark.parametrize(
    ("ends", "restarts", "jobs"),
    [
        pytest.param((LOST, LOST, LOST), 1, 2, marks=pytest.mark.extended),
        ((LOST,), 0, 1),
        ((CODE_FAILURE,), 2, 1),
        ((CONFIG_FAILURE,), 2, 1),
        ((CANCELLED,), 2, 1),
    ],
)
def test_other_failures_fail_the_node(
    tmp_path: Path, ends: tuple[tuple[str, str], ...], restarts: int, jobs: int
) -> None:
    with job_server(tmp_path / "record", *ends) as address:
        code, err = run_pipeline(tmp_path, "flink", job_endpoint=address, job_restarts=restarts)
    assert code == 1
    assert (ends[0][1] or "CANCELLED") in err
    assert len(names(tmp_path / "record")) == jobs


@pytest.mark.parametrize("cause", MESSAGES)
def test_error_of_a_lost_process_or_connection_is_recognized(cause: str) -> None:
    assert is_lost(RuntimeError(f"Pipeline a-job failed in state FAILED: {MESSAGES[cause]}"))


def test_unreachable_job_server_counts_as_a_lost_connection() -> None:
    [port] = free_ports(1)
    with grpc.insecure_channel(f"localhost:{port}") as channel, pytest.raises(grpc.RpcError) as raised:
        beam_job_api_pb2_grpc.JobServiceStub(channel).GetState(beam_job_api_pb2.GetJobStateRequest(), timeout=SECONDS)
    assert is_lost(raised.value)


@pytest.mark.parametrize("cause", FINAL)
def test_errors_that_would_occur_again_are_not_retried(cause: str) -> None:
    assert not is_lost(RuntimeError(f"Pipeline a-job failed in state FAILED: {FINAL[cause]}"))


def start_guard(flink: FakeFlink, name: str) -> subprocess.Popen[str]:
    """Start the process that watches a job of a node."""
    command = [sys.executable, "-E", "-S", flink_rest.__file__, flink.address, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_guard_cancels_the_job_when_the_node_has_ended(flink: FakeFlink) -> None:
    flink.jobs = {"another": "RUNNING", "mine": "RUNNING"}
    _, err = start_guard(flink, "mine").communicate(timeout=SECONDS)
    assert flink.jobs == {"another": "RUNNING", "mine": "CANCELED"}
    assert f"job mine: http://{flink.address}/#/job/enim/overview\n" in err
    assert "job mine is cancelled" in err


def test_guard_waits_for_a_job_that_is_being_submitted(flink: FakeFlink) -> None:
    with start_guard(flink, "mine") as process:
        process.stdin.close()
        assert flink.listed.wait(SECONDS)
        flink.jobs["mine"] = "RUNNING"
        assert flink.cancelled.wait(SECONDS)
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize(("lines", "cancelled"), [("{}\n", ["a job"]), ("{}\n\n", []), ("", [])])
def test_guard_of_other_engines_cancels_with_the_job_api(tmp_path: Path, lines: str, cancelled: list[str]) -> None:
    recorder = Recorder(tmp_path)
    server = serve(recorder)
    request = beam_job_api_pb2.CancelJobRequest(job_id="a job").SerializeToString().hex()
    command = [sys.executable, "-E", job_api.__file__, recorder.address]
    subprocess.run(command, input=lines.format(request), text=True, check=True, timeout=SECONDS)
    assert recorder.cancelled == cancelled
    server.stop(0).wait()


@pytest.mark.parametrize(("state", "line"), [("RUNNING", "\n"), ("FINISHED", "")])
def test_guard_does_not_cancel_a_job_that_has_ended(flink: FakeFlink, state: str, line: str) -> None:
    flink.jobs = {"mine": state}
    process = start_guard(flink, "mine")
    process.communicate(line, timeout=SECONDS)
    assert process.returncode == 0
    assert flink.jobs == {"mine": state}


@pytest.mark.extended
def test_lost_job_is_cancelled_before_the_next_job_is_submitted(tmp_path: Path, flink: FakeFlink) -> None:
    record = tmp_path / "record"
    with job_server(record, LOST, on_run=lambda name: flink.jobs.update({name: "RUNNING"})) as address:
        code, err = run_pipeline(tmp_path, "flink", job_endpoint=address, rest=flink.address)
    assert code == 0, err
    first, second = names(record)
    # The second job has succeeded according to the job server, so it is not cancelled.
    assert flink.jobs == {first: "CANCELED", second: "RUNNING"}
