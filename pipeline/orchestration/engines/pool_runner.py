"""A Beam runner that distributes the work of one job to several EXTERNAL worker pools.

Beam's job service accepts one pool, and requests one worker from it. Here Beam's own runner, in the node's process,
requests as many workers as there are pools, one from each; the workers use Beam's Fn API.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from components.compat import beam as compat
from components.processes import exit_now
from pipeline.authoring.config.runtime import is_here

_started = itertools.count()
_SECONDS = 120.0
"""How long a worker may take to import Beam and to connect."""


class PoolsRunner(compat.WorkersRunner):
    """Runs a pipeline with a worker of each pool in `--environment_config`, addresses host:port separated by commas."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs as Beam's own runner does.

        Args:
          pipeline: the pipeline.
          options: the pipeline's.
        """
        pools = options.view_as(PortableOptions).environment_config
        addresses = pools.split(",")
        with compat.listen_on_loopback(all(map(is_here, addresses))):
            return self.run_in(_environment(pools.encode()), len(addresses), pipeline, options)


class _Handler(compat.PoolHandler):
    """Beam's side of one worker, in the next pool; the payload is the pools' addresses."""

    def __init__(self, pools: bytes, *beam: Any) -> None:
        addresses = pools.decode().split(",")
        self._address = addresses[next(_started) % len(addresses)]
        self._closed = False
        self._timer = threading.Timer(_SECONDS, self._end_process, [f"has not connected within {_SECONDS:.0f} s"])
        self._timer.daemon = True
        super().__init__(self._address, self._watched, *beam)

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
        exit_now(1)


_environment = compat.register_workers("tfx-pipeline:env:pools:v1", _Handler)
