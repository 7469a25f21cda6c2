"""Flink and Spark: jobs go to Beam's job server for the engine, and Python runs in EXTERNAL worker pools."""

from __future__ import annotations

from typing import TypeVar

from pipeline.authoring.config.runtime import FlinkConfig, JobServerConfig, SparkConfig, is_here
from pipeline.orchestration.engines.base import Engine

JOB_RUNNERS = "pipeline.orchestration.engines.job_runner"
"""The module with the runners that follow a job."""

ServerT = TypeVar("ServerT", bound=JobServerConfig)


class _JobServerEngine(Engine[ServerT]):
    """Common to both. The worker pool is not checked, since its address is the one that the engine's workers see."""

    def describe(self, section: ServerT) -> str:
        """Return the job server, and where Python runs."""
        server = f"job server {section.job_endpoint}" if section.job_endpoint else f"{section.job_server_jar} with java"
        return f"{server}, Python in the worker pool {section.worker_pool}"

    def addresses(self, section: ServerT) -> tuple[str, ...]:
        """Return the job server, if the nodes do not start one."""
        return (section.job_endpoint,) if section.job_endpoint else ()

    def jar(self, section: ServerT) -> str | None:
        """Return the job server's jar, if each node starts one."""
        return section.job_server_jar


class Flink(_JobServerEngine[FlinkConfig]):
    """Apache Flink."""

    def options(self, section: FlinkConfig) -> list[str]:
        """Return the job server, the pool, and Flink's own options."""
        return [
            f"--runner={JOB_RUNNERS}.FlinkJobs",
            *_options(section),
            *([f"--flink_rest={rest}"] if (rest := rest_address(section)) else []),
            *_started(section, "flink_job_server_jar", "flink_master", section.master),
            *([f"--parallelism={section.parallelism}"] if section.parallelism else []),
        ]

    def addresses(self, section: FlinkConfig) -> tuple[str, ...]:
        """Return the job server, and Flink's REST API where it is known."""
        rest = rest_address(section)
        return (*super().addresses(section), *((rest,) if rest else ()))

    def check(self, section: FlinkConfig) -> None:
        """Check the cluster, where its REST API is known."""
        # Most commands need no HTTP client.
        from pipeline.orchestration.engines import flink_checks

        if rest := rest_address(section):
            flink_checks.check(section, rest)

    def reads_this_disk(self, section: FlinkConfig) -> bool:
        """If it is on this machine, or the folders are the same."""
        inside = section.master in ("[local]", "[auto]")
        return _reads_this_disk(section, None if inside else section.master)


class Spark(_JobServerEngine[SparkConfig]):
    """Apache Spark."""

    def options(self, section: SparkConfig) -> list[str]:
        """Return the job server, the pool, and Spark's own options."""
        return [
            f"--runner={JOB_RUNNERS}.SparkJobs",
            *_options(section),
            *_started(section, "spark_job_server_jar", "spark_master_url", section.master),
        ]

    def reads_this_disk(self, section: SparkConfig) -> bool:
        """If it is on this machine, or the folders are the same."""
        inside = section.master.startswith("local")
        return _reads_this_disk(section, None if inside else section.master)


def rest_address(section: FlinkConfig) -> str | None:
    """host:port of Flink's REST API; None if it is unknown, or Flink runs inside the job server."""
    return section.rest or (section.master.rpartition("://")[2] if ":" in section.master else None)


def _options(section: JobServerConfig) -> list[str]:
    return [
        *([f"--job_endpoint={section.job_endpoint}"] if section.job_endpoint else []),
        "--environment_type=EXTERNAL",
        f"--environment_config={section.worker_pool}",
        f"--sdk_worker_parallelism={section.workers_per_machine}",
        f"--environment_cache_millis={round(1000 * section.worker_cache_seconds)}",
        f"--job_restarts={section.job_restarts}",
    ]


def _started(section: JobServerConfig, jar: str, name: str, master: str) -> list[str]:
    """Options for a job server that the node starts; one that runs already has its own master."""
    return [f"--{jar}={section.job_server_jar}", f"--{name}={master}"] if section.job_server_jar else []


def _reads_this_disk(section: JobServerConfig, master: str | None) -> bool:
    """Whether the workers are here; `master` is None where the engine runs inside the job server."""
    if section.shared_folders:
        return True
    address = section.job_endpoint or (master and master.rpartition("://")[2])
    return address is None or is_here(address)
