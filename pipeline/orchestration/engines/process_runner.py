"""Beam's runner for this machine with a Python interpreter per worker, which notices the death of a worker."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from components.base.processes import exit_now
from components.compat import beam as compat


class ProcessRunner(FnApiRunner):  # type: ignore[misc]
    """Ends this process if a worker is killed, because Beam would wait forever for the worker's response."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Run a pipeline as Beam's runner does."""
        with compat.on_lost_worker(lambda: exit_now(1)), compat.listen_on_loopback():
            return super().run_pipeline(pipeline, options)
