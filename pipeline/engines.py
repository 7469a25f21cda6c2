"""The engines that Beam runs on, each a list of Beam options; the running mode is always named."""

from __future__ import annotations

from pipeline.config.runtime import RuntimeConfig

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
