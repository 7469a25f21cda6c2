"""The engines that Beam runs on, each a list of Beam options; the running mode is always named."""

from __future__ import annotations

import os

from pipeline.config.runtime import RuntimeConfig

FORKED = "pipeline.workers.ForkedRunner"
"""The class of the runner whose workers are forked."""
_SHARE = 64 << 20
"""Bytes of input that are worth a worker of their own: some five seconds of work."""

_DIRECT = (
    # Named by its class: newer Beam's DirectRunner first looks for Prism, which is a download.
    "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner",
    "--direct_running_mode=in_memory",
    "--direct_num_workers=1",
    # TFX builds a source package for remote workers unless an image is named; here the worker is this process.
    "--sdk_container_image=none",
)


def beam_args(runtime: RuntimeConfig) -> list[str]:
    """Beam's options for the engine of the config; the user's own come last, and win."""
    return [*_DIRECT, *runtime.beam_args]


def ingest_args(runtime: RuntimeConfig, size: int) -> list[str]:
    """Beam's options for ExampleGen alone, on this machine: as many workers as its input is worth.

    They are forked from its process, which costs next to nothing; Beam's own workers would import everything first.

    Args:
      runtime: how the nodes run; a runner or workers that the user asks for are left as they are.
      size: of the input, in bytes.
    """
    if any(option.startswith(("--runner", "--direct_")) for option in runtime.beam_args):
        return []
    workers = min(len(os.sched_getaffinity(0)), size // _SHARE)
    return [f"--runner={FORKED}", f"--direct_num_workers={workers}"] if workers > 1 else []
