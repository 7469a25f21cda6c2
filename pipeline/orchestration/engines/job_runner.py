"""Beam runners that submit a job to a job server, submit a lost one again, and leave none running.

Beam's runners submit a job and wait. If the node ends first, for whatever reason, the job goes on; if the engine loses
a machine for longer than its own restarts cover, the node fails. Jobs are cancelled by Beam's job API; those of Flink
by Flink's REST API, since its job server answers without cancelling anything (checked with Beam 2.62).
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import re
import secrets
import subprocess
import sys
import time
from argparse import ArgumentParser
from typing import Any

import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.spark_runner import SparkRunner

from components.base.errors import find
from components.compat import beam as compat
from pipeline.orchestration import current_node
from pipeline.orchestration.engines import flink_rest, job_api

_RESTART_SECONDS = 2.0
"""Between the end of a lost job and its next submission."""
_ERROR_OF_CODE = "Traceback (most recent call last)"
"""In the error of a job whose Python code has raised an exception, which it would raise again."""
_LOST = re.compile(
    # A task manager of Flink.
    r"TaskManager with id .*(timed out|is no longer reachable)|remote task manager was lost"
    # A Python worker that worked, one that started, and the connection to any server.
    r"|StatusRuntimeException: (CANCELLED|UNAVAILABLE)|worker \S+ of \S+ was killed by|ConnectException"
    # The same of Prism.
    r"|SDK worker disconnected"
    # The job server itself; this text is of gRPC for Python.
    r"|StatusCode\.UNAVAILABLE"
)
"""In the error of a job that has lost a process or a connection; of Flink 1.19, Spark 3.5, Beam 2.62's job servers
and Prism 2.74.

A job server passes on the deepest cause alone.
"""


class JobOptions(PipelineOptions):  # type: ignore[misc]
    """Options of these runners."""

    @classmethod
    def _add_argparse_args(cls, parser: ArgumentParser) -> None:
        parser.add_argument("--job_restarts", type=int, default=0, help="how often a lost job is submitted again")
        parser.add_argument("--flink_rest", help="host:port of Flink's REST API")


class _FollowedJobs(PortableRunner):  # type: ignore[misc]
    """Follows the jobs that it submits."""

    def run_portable_pipeline(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> Any:
        """Run a pipeline, and returns when its job has ended.

        Args:
          pipeline: the pipeline.
          options: the pipeline's.

        Raises:
          RuntimeError: the job has failed.
        """
        restarts = options.view_as(JobOptions).job_restarts
        title = f"{current_node.current().title}-{secrets.token_hex(2)}"
        for attempt in itertools.count(1):
            name = f"{title}-{attempt}"
            try:
                return self._run(copy.deepcopy(pipeline), copy.deepcopy(options), name)
            except Exception as error:
                if attempt > restarts or not is_lost(error):
                    raise
                logging.warning("job %s is lost, and is submitted again: %s", name, error)
            time.sleep(_RESTART_SECONDS)
        raise AssertionError("unreachable")

    def _run(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions, name: str) -> Any:
        # Beam has the option for the names of all runners' jobs in this class.
        options.view_as(GoogleCloudOptions).job_name = name
        guard = _guard(options, name)
        try:
            # LOOPBACK workers, which this process may start; the config requires a job service on this machine.
            with compat.listen_on_loopback():
                result = super().run_portable_pipeline(pipeline, options)
            guard.submitted(result)
            result.wait_until_finish()
        # After a KeyboardInterrupt or SystemExit the process ends, and the guard cancels the job.
        except Exception:
            guard.end(failed=True)
            raise
        guard.end(failed=False)
        return result


class FlinkJobs(_FollowedJobs, FlinkRunner):  # type: ignore[misc]
    """Beam's runner for Flink, with `JobOptions`."""


class SparkJobs(_FollowedJobs, SparkRunner):  # type: ignore[misc]
    """Beam's runner for Spark, with `JobOptions`."""


class PortableJobs(_FollowedJobs):
    """Beam's runner for any job service, with `JobOptions`."""


def is_lost(error: Exception) -> bool:
    """Whether a job has failed because it has lost a process or a connection, which may be there the next time.

    An error of the pipeline's code, of the engine's configuration, and a cancellation are none.
    """
    text = str(error)
    is_final = find(error) is not None or _ERROR_OF_CODE in text or "in state CANCELLED" in text
    return not is_final and _LOST.search(text) is not None


def _guard(options: PipelineOptions, name: str) -> _Guard:
    rest, endpoint = options.view_as(JobOptions).flink_rest, options.view_as(PortableOptions).job_endpoint
    if rest:
        return _FlinkGuard(rest, name)
    # A job server that the node has started ends with it.
    return _ApiGuard(endpoint) if endpoint else _Guard()


class _Guard:
    """What cancels a job if this process ends before it; this one does nothing."""

    def submitted(self, result: Any) -> None:
        """Handle a submitted job; `result` is Beam's."""

    def end(self, failed: bool) -> None:
        """Handle the end of a job; a failed job may still run on the engine."""


class _FlinkGuard(_Guard):
    """A process that cancels a job by Flink's REST API.

    Args:
      address: host:port of the REST API.
      name: of the job.
    """

    def __init__(self, address: str, name: str) -> None:
        self._flink = flink_rest.Flink(address)
        self._name = name
        self._process = _start("-E", "-S", flink_rest.__file__, address, name)

    def end(self, failed: bool) -> None:
        with contextlib.suppress(OSError):
            if job := self._flink.job(self._name):
                current_node.current().jobs.append(self._flink.page(job))
                if failed:
                    self._flink.cancel(job)
        self._process.communicate("\n")


class _ApiGuard(_Guard):
    """A process that cancels a job by Beam's job API.

    Args:
      endpoint: host:port of the job server.
    """

    def __init__(self, endpoint: str) -> None:
        self._result: Any = None
        self._process = _start("-E", job_api.__file__, endpoint)

    def submitted(self, result: Any) -> None:
        self._result = result
        request = beam_job_api_pb2.CancelJobRequest(job_id=compat.job_id(result))
        self._process.stdin.write(request.SerializeToString().hex() + "\n")
        self._process.stdin.flush()

    def end(self, failed: bool) -> None:
        if failed and self._result is not None:
            with contextlib.suppress(grpc.RpcError):
                self._result.cancel()
        self._process.communicate("\n")


def _start(*command: str) -> Any:
    # In a session of its own: a signal to the node's process group must not end it.
    return subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, start_new_session=True, text=True)
