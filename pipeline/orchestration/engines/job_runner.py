"""Beam runners that submit a job to a job server, submit a lost job again, and cancel a job whose node has ended.

Beam's runners submit a job and wait for its end. If the node ends first, for whatever reason, the job continues. If the
engine loses a machine for longer than its restarts cover, the node fails. The runners of this module cancel jobs
through Beam's job API, but Flink's jobs through Flink's REST API, because Flink's job server confirms a cancellation
without cancelling anything (checked with Beam 2.62).
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
"""Pause between the end of a lost job and its next submission."""
_ERROR_OF_CODE = "Traceback (most recent call last)"
"""Occurs in the error of a job whose Python code has raised an exception. The code would raise it again."""
_LOST = re.compile(
    # A task manager of Flink.
    r"TaskManager with id .*(timed out|is no longer reachable)|remote task manager was lost"
    # A Python worker at work, a starting Python worker, and the connection to any server.
    r"|StatusRuntimeException: (CANCELLED|UNAVAILABLE)|worker \S+ of \S+ was killed by|ConnectException"
    # A Python worker of Prism.
    r"|SDK worker disconnected"
    # The job server itself, as gRPC for Python reports it.
    r"|StatusCode\.UNAVAILABLE"
)
"""Matches the error of a job that has lost a process or a connection, in Flink 1.19, Spark 3.5, the job servers of Beam
2.62, and Prism 2.74.

A job server reports only the deepest cause of an error.
"""


class JobOptions(PipelineOptions):  # type: ignore[misc]
    """Additional Beam options of these runners."""

    @classmethod
    def _add_argparse_args(cls, parser: ArgumentParser) -> None:
        parser.add_argument("--job_restarts", type=int, default=0, help="how often a lost job is submitted again")
        parser.add_argument("--flink_rest", help="host:port of Flink's REST API")


class _FollowedJobs(PortableRunner):  # type: ignore[misc]
    """Follows its jobs to their end and submits lost jobs again."""

    def run_portable_pipeline(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> Any:
        """Run a pipeline, and return when its job has ended.

        Args:
          pipeline: Message of the pipeline.
          options: Options of the pipeline.

        Raises:
          RuntimeError: The job has failed.
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
        # Beam defines the option for the job name of all runners in this class.
        options.view_as(GoogleCloudOptions).job_name = name
        guard = _start_guard(options, name)
        try:
            # This process may serve LOOPBACK workers, for which the config requires a job service on this machine.
            with compat.listen_on_loopback():
                result = super().run_portable_pipeline(pipeline, options)
            guard.set_job(result)
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
    """Return whether a job has failed because it has lost a process or a connection, so that a retry may succeed.

    Errors of the pipeline's code or of the engine's configuration, and cancellations, would occur again.
    """
    text = str(error)
    is_final = find(error) is not None or _ERROR_OF_CODE in text or "in state CANCELLED" in text
    return not is_final and _LOST.search(text) is not None


def _start_guard(options: PipelineOptions, name: str) -> _Guard:
    rest_address, endpoint = options.view_as(JobOptions).flink_rest, options.view_as(PortableOptions).job_endpoint
    if rest_address:
        return _FlinkGuard(rest_address, name)
    # A job server that the node has started ends with the node, so its jobs do not need a guard.
    return _ApiGuard(endpoint) if endpoint else _Guard()


class _Guard:
    """Cancels a job if this process ends before the job. The base class does nothing."""

    def set_job(self, result: Any) -> None:
        """Set the submitted job, for which `result` is Beam's PipelineResult."""

    def end(self, failed: bool) -> None:
        """Handle the end of a job; a failed job may still run on the engine."""


class _FlinkGuard(_Guard):
    """A process that cancels a job through Flink's REST API.

    Args:
      address: host:port of the REST API.
      name: Name of the job.
    """

    def __init__(self, address: str, name: str) -> None:
        self._flink = flink_rest.Flink(address)
        self._name = name
        self._process = _start_process("-E", "-S", flink_rest.__file__, address, name)

    def end(self, failed: bool) -> None:
        with contextlib.suppress(OSError):
            if job := self._flink.job(self._name):
                current_node.current().jobs.append(self._flink.page(job))
                if failed:
                    self._flink.cancel(job)
        self._process.communicate("\n")


class _ApiGuard(_Guard):
    """A process that cancels a job through Beam's job API.

    Args:
      endpoint: host:port of the job server.
    """

    def __init__(self, endpoint: str) -> None:
        self._result: Any = None
        self._process = _start_process("-E", job_api.__file__, endpoint)

    def set_job(self, result: Any) -> None:
        self._result = result
        request = beam_job_api_pb2.CancelJobRequest(job_id=compat.job_id(result))
        self._process.stdin.write(request.SerializeToString().hex() + "\n")
        self._process.stdin.flush()

    def end(self, failed: bool) -> None:
        if failed and self._result is not None:
            with contextlib.suppress(grpc.RpcError):
                self._result.cancel()
        self._process.communicate("\n")


def _start_process(*command: str) -> Any:
    # Start a new session, because a signal to the node's process group must not end the guard.
    return subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, start_new_session=True, text=True)
