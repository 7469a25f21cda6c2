"""Direct: Beam on this machine, in the node's own process or in several."""

from __future__ import annotations

import os

from pipeline.authoring.config.runtime import DirectConfig
from pipeline.orchestration.engines.base import Engine

FORKED = "pipeline.orchestration.engines.forked_runner.ForkedRunner"
"""The class of the runner whose workers are forked."""
PROCESSES = "pipeline.orchestration.engines.process_runner.ProcessRunner"
"""The class of the runner that starts a Python interpreter for each worker."""
_RUNNER = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
"""Named by its class: the DirectRunner of newer Beam versions first downloads Prism."""
_IN_MEMORY = "--direct_running_mode=in_memory"
_SHARE = 64 << 20
"""Bytes of the pipeline's input per worker: about 1.5 CPU-seconds of ExampleGen, and 0.8 of StatisticsGen; a worker
costs 0.2 to fork, and to merge what it computed."""


class Direct(Engine[DirectConfig]):
    """This machine; the running mode is always named."""

    def options(self, section: DirectConfig) -> list[str]:
        """Beam's own runner, and how many processes it works in."""
        if section.mode == "multi_processing":
            workers = f"--direct_num_workers={_most(section)}"
            return [f"--runner={PROCESSES}", "--direct_running_mode=multi_processing", workers]
        return [_RUNNER, _IN_MEMORY, "--direct_num_workers=1"]

    def describe(self, section: DirectConfig) -> str:
        """Return the mode, and the number of worker processes."""
        if section.mode == "multi_processing":
            return f"on this machine, {_most(section)} worker processes for each node, as runtime.direct.mode says"
        return "on this machine, in memory, in each node's own process"

    def reads_this_disk(self, section: DirectConfig) -> bool:
        """Return True."""
        return True


def forked_workers(section: DirectConfig, size: int) -> int:
    """Return how many workers a columnar node forks for `size` bytes of input; with 1 it works in its process."""
    if section.mode == "in_memory":
        return 1
    return max(1, _most(section) if section.mode == "multi_processing" else min(_most(section), size // _SHARE))


def forked_options(workers: int) -> list[str]:
    """Beam's options for a node with forked workers; they override those of all nodes."""
    # In another mode, Beam's runner would start its own workers instead of the forked ones.
    return [f"--runner={FORKED}", _IN_MEMORY, f"--direct_num_workers={workers}"] if workers > 1 else []


def _most(section: DirectConfig) -> int:
    return section.workers or len(os.sched_getaffinity(0))
