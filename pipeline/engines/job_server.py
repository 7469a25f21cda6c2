"""Flink and Spark: jobs go to Beam's job server for the engine, and Python runs in EXTERNAL worker pools."""

from __future__ import annotations

from typing import TypeVar

from pipeline.config.engines import FlinkConfig, JobServerConfig, SparkConfig, is_here
from pipeline.engines.engine import Engine

ServerT = TypeVar("ServerT", bound=JobServerConfig)


class _BehindAJobServer(Engine[ServerT]):
    """What both have in common; the worker pool is not tried, since it is where the engine's own workers are."""

    def told(self, section: ServerT) -> str:
        """Who takes the jobs, and where Python runs."""
        server = f"job server {section.job_endpoint}" if section.job_endpoint else f"{section.job_server_jar} with java"
        return f"{server}, Python in the worker pool {section.worker_pool}"

    def addresses(self, section: ServerT) -> tuple[str, ...]:
        """The job server, if it runs already."""
        return (section.job_endpoint,) if section.job_endpoint else ()

    def jar(self, section: ServerT) -> str | None:
        """The job server, if each node starts one."""
        return section.job_server_jar


class Flink(_BehindAJobServer[FlinkConfig]):
    """Apache Flink."""

    def options(self, section: FlinkConfig) -> list[str]:
        """The job server, the pool, and what is Flink's own."""
        return [
            "--runner=FlinkRunner",
            *_options(section),
            *_started(section, "flink_job_server_jar", "flink_master", section.master),
            *([f"--parallelism={section.parallelism}"] if section.parallelism else []),
        ]

    def reads_this_disk(self, section: FlinkConfig) -> bool:
        """If it is on this machine, or the folders are the same."""
        inside = section.master in ("[local]", "[auto]")
        return _reads_this_disk(section, None if inside else section.master)


class Spark(_BehindAJobServer[SparkConfig]):
    """Apache Spark."""

    def options(self, section: SparkConfig) -> list[str]:
        """The job server, the pool, and what is Spark's own."""
        return [
            "--runner=SparkRunner",
            *_options(section),
            *_started(section, "spark_job_server_jar", "spark_master_url", section.master),
        ]

    def reads_this_disk(self, section: SparkConfig) -> bool:
        """If it is on this machine, or the folders are the same."""
        inside = section.master.startswith("local")
        return _reads_this_disk(section, None if inside else section.master)


def _options(section: JobServerConfig) -> list[str]:
    return [
        *([f"--job_endpoint={section.job_endpoint}"] if section.job_endpoint else []),
        "--environment_type=EXTERNAL",
        f"--environment_config={section.worker_pool}",
        f"--sdk_worker_parallelism={section.workers_per_machine}",
    ]


def _started(section: JobServerConfig, jar: str, name: str, master: str) -> list[str]:
    """Options for a job server that the node starts; one that runs already knows its master itself."""
    return [f"--{jar}={section.job_server_jar}", f"--{name}={master}"] if section.job_server_jar else []


def _reads_this_disk(section: JobServerConfig, master: str | None) -> bool:
    """Whether the workers are here; `master` is None where the engine runs inside the job server."""
    if section.shared_folders:
        return True
    place = section.job_endpoint or (master and master.rpartition("://")[2])
    return place is None or is_here(place)
