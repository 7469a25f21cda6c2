"""The settings of the engines that Beam runs on: a section for each, so that one config carries several."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, StringConstraints, model_validator

from components.pusher.config import Address
from components.section import Section

_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine."""


def is_here(address: str) -> bool:
    """Whether a host:port is on this machine."""
    return address.rpartition(":")[0] in LOOPBACK


def _local_file(path: str) -> str:
    if "://" in path:
        raise ValueError(f"expected a file on this machine, since nothing is downloaded; received {path!r}")
    return path


def _labels(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not _LABEL.fullmatch(f"{name}={value}"):
            raise ValueError(
                "expected small letters, digits, - and _, at most 63 on each side and a letter first, "
                f"received {name}={value}"
            )
    return given


Bucket = Annotated[str, StringConstraints(pattern=r"^gs://[^/]+(/.*)?$")]
"""A place in Cloud Storage."""
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
"""Labels of Google Cloud's resources, name → value."""
Jar = Annotated[str, AfterValidator(_local_file)]
"""A jar that is there already."""


class DirectConfig(Section):
    """Beam on this machine."""

    mode: Literal["auto", "in_memory", "multi_processing"] = "auto"
    """in_memory: in the node's own process. multi_processing: in several processes, those of ExampleGen forked, those
    of other nodes Beam's own, which first import everything: four times the CPU on 15,000 rows. auto: in memory, but
    ExampleGen forks a worker for each 64 MiB of input."""
    workers: PositiveInt | None = None
    """Worker processes; with auto at most. One per core if not given."""


class DataflowConfig(Section):
    """Google Cloud Dataflow; credentials come from the environment."""

    project: str = Field(min_length=1)
    """The Google Cloud project that pays."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """Where the workers are, such as us-central1; best where the data is."""
    image: str = Field(min_length=1)
    """The workers' container: this project and what it needs, on Beam's SDK image. Without one, TFX would have each
    worker install everything when it starts."""
    temp_location: Bucket
    """A gs:// folder for what a job leaves behind; give it a lifecycle rule."""
    staging_location: Bucket | None = None
    """A gs:// folder for what a job is made of; <temp_location>/staging if not given."""
    machine_type: str = "n2-standard-4"
    """The workers."""
    disk_gb: int = Field(default=50, ge=30)
    """Each worker's disk. Shuffle is not on it, the container's image is."""
    workers: PositiveInt | None = None
    """How many a job begins with; Dataflow decides if not given."""
    max_workers: int = Field(default=10, ge=1, le=4000)
    """How many it may grow to: a bound on what a job can cost."""
    autoscaling: bool = True
    """Whether Dataflow changes their number as the work needs; otherwise it stays at `workers`."""
    public_ips: bool = False
    """Whether workers have addresses on the internet. Without them, the subnetwork needs Private Google Access."""
    network: str | None = None
    """The VPC network; the project's default if not given."""
    subnetwork: Annotated[str, StringConstraints(pattern=r"(^|/)regions/[^/]+/subnetworks/[^/]+$")] | None = None
    """Such as regions/us-central1/subnetworks/workers; for a shared VPC the whole URL."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Whose rights the workers have; the project's Compute Engine account, which may do much, if not given."""
    labels: Labels = Field(default_factory=dict)
    """Name → value on each job, for the bill; TFX adds its own."""
    shuffle: Literal["service", "workers"] = "service"
    """Where rows are grouped: in Dataflow Shuffle, or on the workers' disks."""
    service_options: tuple[str, ...] = ()
    """Further switches of Dataflow, such as enable_prime."""

    @model_validator(mode="after")
    def _counts_fit(self) -> DataflowConfig:
        if not self.autoscaling and self.workers is None:
            raise ValueError("autoscaling: false keeps the number of workers; expected workers, received none")
        if self.workers is not None and self.workers > self.max_workers:
            raise ValueError(f"expected at most max_workers={self.max_workers} workers, received {self.workers}")
        return self


class JobServerConfig(Section):
    """What Flink and Spark have in common: a job server of Beam's, and workers in a pool."""

    job_endpoint: Address | None = None
    """A job server of Beam's that runs already, as host:port."""
    job_server_jar: Jar | None = None
    """Or the jar of one on this machine, which each node starts with java; nothing is downloaded."""
    worker_pool: Address = "localhost:50000"
    """The EXTERNAL worker pool that runs Python beside each of the engine's own workers, as these see it."""
    workers_per_machine: PositiveInt = 1
    """Python processes that the pool is asked for on each machine."""
    shared_folders: bool = False
    """Whether the engine's machines see the same folders under the same names as this one, as on a network mount.
    Without that, data and artifacts have to be URLs, unless the engine is on this machine."""

    @model_validator(mode="after")
    def _one_server(self) -> JobServerConfig:
        if (self.job_endpoint is None) == (self.job_server_jar is None):
            told = "none" if self.job_endpoint is None else "both"
            raise ValueError(f"expected either job_endpoint or job_server_jar, received {told}")
        return self


class FlinkConfig(JobServerConfig):
    """Apache Flink."""

    master: str = "[auto]"
    """With a jar: the Flink to send jobs to, as host:port; [local] or [auto]: one inside the job server."""
    parallelism: PositiveInt | None = None
    """Shares that each step is cut into; the cluster's default if not given."""


class SparkConfig(JobServerConfig):
    """Apache Spark. Beam has no option for its parallelism: it is Spark's spark.default.parallelism."""

    master: Annotated[str, StringConstraints(pattern=r"^(local(\[.+\])?|spark://.+)$")] = "local[*]"
    """With a jar: spark://host:port, or local[N]: a Spark inside the job server, with N threads."""


class PortableConfig(Section):
    """Any engine behind Beam's job API, or pools of workers without an engine."""

    job_endpoint: Address | None = None
    """The job service, as host:port. Without it the node's own process shares the work out to `worker_pools`."""
    worker_pools: tuple[Address, ...] = ()
    """EXTERNAL worker pools, as host:port. With a job endpoint one at most: none means LOOPBACK, workers in the node's
    own process. Without a job endpoint as many as there are: each gives one worker to each job."""
    shared_folders: bool = False
    """Whether the workers' machines see the same folders under the same names as this one, as on a network mount."""

    @model_validator(mode="after")
    def _has_workers(self) -> PortableConfig:
        endpoint, pools = self.job_endpoint, self.worker_pools
        if endpoint is None and not pools:
            raise ValueError("expected a job_endpoint, or worker_pools to do without one, received neither")
        if endpoint is not None and len(pools) > 1:
            raise ValueError(
                f"a job service is told one pool, received {len(pools)}; leave job_endpoint out to use them all"
            )
        if endpoint is not None and not pools and not is_here(endpoint):
            raise ValueError(
                f"LOOPBACK workers listen on this machine alone; expected a worker pool for {endpoint}, received none"
            )
        return self
