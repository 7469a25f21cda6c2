"""Portable: any Beam job service, or worker pools without one."""

from __future__ import annotations

from pipeline.authoring.config.runtime import PortableConfig, is_here
from pipeline.orchestration.engines.base import Engine
from pipeline.orchestration.engines.job_server import JOB_RUNNERS

_POOLS = "pipeline.orchestration.engines.pool_runner.PoolsRunner"
"""The class of the runner that distributes work to several pools."""


class Portable(Engine[PortableConfig]):
    """Any job service of Beam's job API."""

    def options(self, section: PortableConfig) -> list[str]:
        """The job service, or this project's runner without one."""
        pools = [f"--environment_config={','.join(section.worker_pools)}"] if section.worker_pools else []
        if section.job_endpoint is None:
            return [f"--runner={_POOLS}", *pools]
        return [
            f"--runner={JOB_RUNNERS}.PortableJobs",
            f"--job_endpoint={section.job_endpoint}",
            f"--environment_type={'EXTERNAL' if pools else 'LOOPBACK'}",
            *pools,
            f"--job_restarts={section.job_restarts}",
        ]

    def describe(self, section: PortableConfig) -> str:
        """The job service, and where Python runs."""
        pools = ", ".join(section.worker_pools)
        if section.job_endpoint is None:
            return f"each node distributes its work to the worker pools {pools}"
        workers = f"EXTERNAL: workers in the pool {pools}" if pools else "LOOPBACK: workers in each node's own process"
        return f"job service {section.job_endpoint}, {workers}"

    def reads_this_disk(self, section: PortableConfig) -> bool:
        """If all are on this machine, or the folders are the same."""
        named = section.worker_pools if section.job_endpoint is None else (section.job_endpoint, *section.worker_pools)
        return section.shared_folders or all(map(is_here, named))

    def addresses(self, section: PortableConfig) -> tuple[str, ...]:
        """The job service and the pools, as far as they are to be seen from here."""
        if section.job_endpoint is None:
            return section.worker_pools
        # Where the job service is elsewhere, its pool's address is as that sees it.
        return (section.job_endpoint, *(section.worker_pools if is_here(section.job_endpoint) else ()))
