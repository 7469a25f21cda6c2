"""The engine `threads`: Beam in the node's own process, in several threads."""

from __future__ import annotations

from pydantic import PositiveInt

from components.base.config_section import Section
from pipeline.orchestration.engines.base import Engine


class ThreadsConfig(Section):
    """The settings in `runtime.engine_options`."""

    threads: PositiveInt = 2


class Threads(Engine[ThreadsConfig]):
    """Beam's own runner with several threads."""

    section_type = ThreadsConfig

    def options(self, section: ThreadsConfig) -> list[str]:
        """Return Beam's options."""
        runner = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
        return [runner, "--direct_running_mode=multi_threading", f"--direct_num_workers={section.threads}"]

    def describe(self, section: ThreadsConfig) -> str:
        """Return the number of threads."""
        return f"on this machine, {section.threads} threads for each node"

    def reads_this_disk(self, section: ThreadsConfig) -> bool:
        """Return True, because the threads are part of the node's process."""
        return True
