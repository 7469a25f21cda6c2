"""Direct: Beam on this machine, in the node's process or in several processes."""

from __future__ import annotations

import os

from pipeline.authoring.config.runtime import DirectConfig
from pipeline.orchestration.engines.base import Engine

FORKED = "pipeline.orchestration.engines.forked_runner.ForkedRunner"
"""Import path of the runner whose workers are forked."""
PROCESSES = "pipeline.orchestration.engines.process_runner.ProcessRunner"
"""Import path of the runner that starts a Python interpreter per worker."""
_RUNNER = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
"""The class is named because DirectRunner, in newer versions of Beam, first downloads Prism."""
_IN_MEMORY = "--direct_running_mode=in_memory"
_BYTES_PER_WORKER = 64 << 20
"""Bytes of the pipeline's input per worker. ExampleGen takes about 1.5 CPU-seconds for them and StatisticsGen 0.8. To
fork a worker and to merge its results takes 0.2 CPU-seconds."""


class Direct(Engine[DirectConfig]):
    """Beam on this machine. The options always name the running mode."""

    def options(self, section: DirectConfig) -> list[str]:
        """Return the runner, its mode and the number of its worker processes."""
        if section.mode == "multi_processing":
            workers = f"--direct_num_workers={_get_max_workers(section)}"
            return [f"--runner={PROCESSES}", "--direct_running_mode=multi_processing", workers]
        return [_RUNNER, _IN_MEMORY, "--direct_num_workers=1"]

    def describe(self, section: DirectConfig) -> str:
        """Return the mode, and the number of worker processes."""
        if section.mode == "multi_processing":
            workers = _get_max_workers(section)
            return f"on this machine, {workers} worker processes for each node, as runtime.direct.mode says"
        return "on this machine, in memory, in each node's own process"

    def reads_this_disk(self, section: DirectConfig) -> bool:
        """Return True."""
        return True


def count_forked_workers(section: DirectConfig, size: int) -> int:
    """Return the number of workers that a columnar node forks for `size` bytes of input; 1 means it does not fork."""
    if section.mode == "in_memory":
        return 1
    max_workers = _get_max_workers(section)
    return max(1, max_workers if section.mode == "multi_processing" else min(max_workers, size // _BYTES_PER_WORKER))


def get_fork_options(workers: int) -> list[str]:
    """Return Beam's options for a node with forked workers; they override the engine's options."""
    # In another mode, Beam's runner would start interpreters as workers instead of using the forked workers.
    return [f"--runner={FORKED}", _IN_MEMORY, f"--direct_num_workers={workers}"] if workers > 1 else []


def _get_max_workers(section: DirectConfig) -> int:
    return section.workers or len(os.sched_getaffinity(0))
