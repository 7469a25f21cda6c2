"""Flink and Spark: nodes submit jobs to Beam's job server for the engine, and Python runs in EXTERNAL worker pools."""

from __future__ import annotations

from typing import TypeVar

from pipeline.authoring.config.runtime import FlinkConfig, JobServerConfig, SparkConfig, is_here
from pipeline.orchestration.engines.base import Engine

JOB_RUNNERS = "pipeline.orchestration.engines.job_runner"
"""Module of the runners that follow a job to its end."""

ServerT = TypeVar("ServerT", bound=JobServerConfig)


class _JobServerEngine(Engine[ServerT]):
    """Common base of Flink and Spark.

    The address of the worker pool is not checked, because only the engine's workers must be able to reach it.
    """

    def describe(self, section: ServerT) -> str:
        """Describe the job server, and where Python runs."""
        server = f"job server {section.job_endpoint}" if section.job_endpoint else f"{section.job_server_jar} with java"
        return f"{server}, Python in the worker pool {section.worker_pool}"

    def addresses(self, section: ServerT) -> tuple[str, ...]:
        """Return the address of the job server, unless the nodes start one."""
        return (section.job_endpoint,) if section.job_endpoint else ()

    def jar(self, section: ServerT) -> str | None:
        """Return the path of the job server's jar, if the nodes start a job server."""
        return section.job_server_jar


class Flink(_JobServerEngine[FlinkConfig]):
    """Apache Flink."""

    def options(self, section: FlinkConfig) -> list[str]:
        """Return the options for the job server and the worker pool, and Flink's options."""
        return [
            f"--runner={JOB_RUNNERS}.FlinkJobs",
            *_list_options(section),
            *([f"--flink_rest={address}"] if (address := rest_address(section)) else []),
            *_list_job_server_options(section, "flink_job_server_jar", "flink_master", section.master),
            *([f"--parallelism={section.parallelism}"] if section.parallelism else []),
        ]

    def addresses(self, section: FlinkConfig) -> tuple[str, ...]:
        """Return the addresses of the job server and, if it is known, of Flink's REST API."""
        address = rest_address(section)
        return (*super().addresses(section), *((address,) if address else ()))

    def check(self, section: FlinkConfig) -> None:
        """Check the cluster if the address of its REST API is known."""
        # Imported here because most commands do not need an HTTP client.
        from pipeline.orchestration.engines import flink_checks

        if address := rest_address(section):
            flink_checks.check(section, address)

    def reads_this_disk(self, section: FlinkConfig) -> bool:
        """Return whether Flink runs on this machine, or sees the same folders."""
        is_embedded = section.master in ("[local]", "[auto]")
        return _reads_this_disk(section, None if is_embedded else section.master)


class Spark(_JobServerEngine[SparkConfig]):
    """Apache Spark."""

    def options(self, section: SparkConfig) -> list[str]:
        """Return the options for the job server and the worker pool, and Spark's options."""
        return [
            f"--runner={JOB_RUNNERS}.SparkJobs",
            *_list_options(section),
            *_list_job_server_options(section, "spark_job_server_jar", "spark_master_url", section.master),
        ]

    def reads_this_disk(self, section: SparkConfig) -> bool:
        """Return whether Spark runs on this machine, or sees the same folders."""
        is_embedded = section.master.startswith("local")
        return _reads_this_disk(section, None if is_embedded else section.master)


def rest_address(section: FlinkConfig) -> str | None:
    """Return host:port of Flink's REST API; None if it is unknown, or if Flink runs inside the job server."""
    return section.rest or (section.master.rpartition("://")[2] if ":" in section.master else None)


def _list_options(section: JobServerConfig) -> list[str]:
    return [
        *([f"--job_endpoint={section.job_endpoint}"] if section.job_endpoint else []),
        "--environment_type=EXTERNAL",
        f"--environment_config={section.worker_pool}",
        f"--sdk_worker_parallelism={section.workers_per_machine}",
        f"--environment_cache_millis={round(1000 * section.worker_cache_seconds)}",
        f"--job_restarts={section.job_restarts}",
    ]


def _list_job_server_options(section: JobServerConfig, jar_option: str, master_option: str, master: str) -> list[str]:
    """Return the options for a job server that the node starts; a running job server already knows its master."""
    if not section.job_server_jar:
        return []
    return [f"--{jar_option}={section.job_server_jar}", f"--{master_option}={master}"]


def _reads_this_disk(section: JobServerConfig, master: str | None) -> bool:
    """Return whether the workers see this disk; `master` is None if the engine runs inside the job server."""
    if section.shared_folders:
        return True
    address = section.job_endpoint or (master and master.rpartition("://")[2])
    return address is None or is_here(address)
