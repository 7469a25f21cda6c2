"""A Beam runner for this machine whose workers are forked, so that they do not import anything.

Beam's `multi_processing` starts a Python interpreter for each worker, which imports everything again. The threads of
Beam's `multi_threading` share the lock of one interpreter.
"""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from components.base.processes import describe_exit, exit_now
from components.compat import beam as compat
from pipeline.orchestration.engines.worker_fork_server import WorkerForkServer


class ForkedRunner(compat.WorkersRunner):
    """Runs a pipeline in `--direct_num_workers` forked workers. Create it before the process starts threads."""

    def __init__(self) -> None:
        self._fork_server = WorkerForkServer(_work, _on_event)
        super().__init__()

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Run a pipeline as Beam's runner does; the workers have ended when this method returns.

        Args:
          pipeline: Beam pipeline.
          options: Options of the pipeline.
        """
        global _fork_server
        _fork_server = self._fork_server
        try:
            workers = options.view_as(DirectOptions).direct_num_workers or 1
            with compat.listen_on_loopback():
                return self.run_in(_environment(b""), workers, pipeline, options)
        finally:
            self._fork_server.close()


_fork_server: WorkerForkServer
"""Fork server of the pipeline that runs in this process."""
_numbers = itertools.count()


class _Handler(compat.ProcessHandler):
    """Beam's side of one worker."""

    def start_worker(self) -> None:
        _fork_server.start(next(_numbers), pickle.dumps(self.harness_environment()))


_environment = compat.register_workers("tfx-pipeline:env:forked:v1", _Handler)


def _work(environment: bytes, _: Callable[[str], None]) -> None:
    compat.run_harness(pickle.loads(environment))  # noqa: S301 - sent by the parent process


def _on_event(_: int, event: str | int) -> None:
    """End this process if a worker is killed, because Beam would wait forever for the worker's response."""
    if isinstance(event, int) and event < 0:
        logging.critical("a worker of Beam %s; out of memory?", describe_exit(event))
        exit_now(1)
