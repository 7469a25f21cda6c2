"""Direct: Beam on this machine, in the node's own process or in several."""

from __future__ import annotations

import os

from pipeline.config.engines import DirectConfig
from pipeline.engines.engine import Engine

FORKED = "pipeline.workers.ForkedRunner"
"""The class of the runner whose workers are forked."""
_RUNNER = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
"""Named by its class: newer Beam's DirectRunner first looks for Prism, which is a download."""
_IN_MEMORY = "--direct_running_mode=in_memory"
_SHARE = 64 << 20
"""Bytes of input that are worth a worker of their own: some five seconds of work."""


class Direct(Engine[DirectConfig]):
    """This machine; the running mode is always named."""

    def options(self, section: DirectConfig) -> list[str]:
        """Beam's own runner, and how many processes it works in."""
        if section.mode == "multi_processing":
            return [_RUNNER, "--direct_running_mode=multi_processing", f"--direct_num_workers={_most(section)}"]
        return [_RUNNER, _IN_MEMORY, "--direct_num_workers=1"]

    def told(self, section: DirectConfig) -> str:
        """The mode, which is never left to Beam."""
        if section.mode == "multi_processing":
            return f"on this machine, {_most(section)} worker processes for each node, as runtime.direct.mode says"
        return "on this machine, in memory, in each node's own process"

    def reads_this_disk(self, section: DirectConfig) -> bool:
        """They are on it."""
        return True


def ingest_workers(section: DirectConfig, size: int) -> int:
    """How many workers ExampleGen is to fork for so many bytes of input; 1: none, it works in its own process."""
    if section.mode == "in_memory":
        return 1
    return max(1, _most(section) if section.mode == "multi_processing" else min(_most(section), size // _SHARE))


def ingest_options(workers: int) -> list[str]:
    """Beam's options for ExampleGen with so many forked workers; they come after those of all nodes, and win."""
    # With another mode named, Beam's runner would put workers of its own in the place of the forked ones.
    return [f"--runner={FORKED}", _IN_MEMORY, f"--direct_num_workers={workers}"] if workers > 1 else []


def _most(section: DirectConfig) -> int:
    return section.workers or len(os.sched_getaffinity(0))
