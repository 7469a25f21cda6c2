"""A Beam runner that distributes the work of one job to several EXTERNAL worker pools.

Beam's job service accepts one pool, and requests one worker from it. Here Beam's own runner, in the node's process,
requests as many workers as there are pools, one from each; the workers use Beam's Fn API.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_runner_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ExternalWorkerHandler, WorkerHandler
from apache_beam.transforms import environments

from pipeline.authoring.config.runtime import is_here

_URN = "tfx-pipeline:env:pools:v1"
_started = itertools.count()
_SECONDS = 120.0
"""How long a worker may take to import Beam and to connect."""


class PoolsRunner(FnApiRunner):  # type: ignore[misc]
    """Runs a pipeline with a worker of each pool in `--environment_config`, addresses host:port separated by commas."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """As Beam's own runner.

        Args:
          pipeline: the pipeline.
          options: the pipeline's.
        """
        pools = options.view_as(PortableOptions).environment_config
        self._default_environment = _Environment(pools.encode(), environments.python_sdk_capabilities())
        direct = options.view_as(DirectOptions)
        # Beam's runner would warn that several workers need another running mode, which does not apply here.
        self._num_workers, direct.direct_num_workers = len(pools.split(",")), None
        return super().run_pipeline(pipeline, options)


@environments.Environment.register_urn(_URN, bytes)
class _Environment(environments.Environment):  # type: ignore[misc]
    """The environment of a pipeline whose workers are in pools."""

    def __init__(self, pools: bytes, capabilities: Any = (), artifacts: Any = (), hints: Any = None) -> None:
        super().__init__(capabilities, artifacts, hints)
        self._pools = pools

    def to_runner_api_parameter(self, _: Any) -> tuple[str, bytes]:
        return _URN, self._pools

    @staticmethod
    def from_runner_api_parameter(pools: bytes, capabilities: Any, artifacts: Any, hints: Any, _: Any) -> _Environment:
        return _Environment(pools, capabilities, artifacts, hints)


@WorkerHandler.register_environment(_URN, bytes)
class _Handler(ExternalWorkerHandler):  # type: ignore[misc]
    """Beam's side of one worker, in the next pool."""

    def __init__(self, pools: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        addresses = pools.decode().split(",")
        self._address = addresses[next(_started) % len(addresses)]
        self._closed = False
        self._timer = threading.Timer(_SECONDS, self._end_process, [f"has not connected within {_SECONDS:.0f} s"])
        self._timer.daemon = True
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=self._address)
        super().__init__(beam_runner_api_pb2.ExternalPayload(endpoint=endpoint), state, provision_info, grpc_server)
        # What Beam calls with a worker's answers, once it is there.
        take = self.control_conn.set_input
        self.control_conn.set_input = lambda answers: take(self._watched(answers))

    def start_worker(self) -> None:
        """Requests the worker from the pool."""
        self._timer.start()
        super().start_worker()

    def close(self) -> None:
        """Ends the worker."""
        self._closed = True
        self._timer.cancel()
        super().close()

    def host_from_worker(self) -> str:
        """This machine's name as the worker resolves it."""
        return "localhost" if is_here(self._address) else str(super().host_from_worker())

    def _watched(self, answers: Iterable[Any]) -> Iterator[Any]:
        self._timer.cancel()
        try:
            yield from answers
        finally:
            if not self._closed:
                self._end_process("has ended")

    def _end_process(self, how: str) -> None:
        """Ends this process: Beam would wait for the worker's answer forever."""
        logging.critical("a worker of the pool %s %s; see the pool's log", self._address, how)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
