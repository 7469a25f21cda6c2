"""Portable: any service that implements Beam's job API."""

from __future__ import annotations

from pipeline.authoring.config.runtime import PortableConfig, is_here
from pipeline.orchestration.engines.base import Engine
from pipeline.orchestration.engines.job_server import JOB_RUNNERS


class Portable(Engine[PortableConfig]):
    """Any service that implements Beam's job API."""

    def options(self, section: PortableConfig) -> list[str]:
        """Return the options for the job service, and for the environment in which its workers run."""
        pool = section.worker_pool
        return [
            f"--runner={JOB_RUNNERS}.PortableJobs",
            f"--job_endpoint={section.job_endpoint}",
            *(["--environment_type=EXTERNAL", f"--environment_config={pool}"] if pool else _LOOPBACK),
            f"--job_restarts={section.job_restarts}",
        ]

    def describe(self, section: PortableConfig) -> str:
        """Describe the job service, and where Python runs."""
        pool = section.worker_pool
        workers = f"EXTERNAL: workers in the pool {pool}" if pool else "LOOPBACK: workers in each node's own process"
        return f"job service {section.job_endpoint}, {workers}"

    def reads_this_disk(self, section: PortableConfig) -> bool:
        """Return whether the job service and the pool run on this machine, or see the same folders."""
        return section.shared_folders or all(map(is_here, _list_addresses(section)))

    def addresses(self, section: PortableConfig) -> tuple[str, ...]:
        """Return the addresses of the job service and, if it can be reached from here, of the pool."""
        # If the job service is on another machine, the pool's address is valid only on that machine.
        return _list_addresses(section) if is_here(section.job_endpoint) else (section.job_endpoint,)


_LOOPBACK = ["--environment_type=LOOPBACK"]


def _list_addresses(section: PortableConfig) -> tuple[str, ...]:
    """Return the addresses in the config."""
    return (section.job_endpoint, *([section.worker_pool] if section.worker_pool else []))
