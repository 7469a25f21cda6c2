"""The sections `pipeline`, `runtime` with the engines that Beam runs on, and `metadata` with the store.

Each engine has a section of its own, so that one config can hold the settings of several.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, StringConstraints, model_validator
from typing_extensions import Self

from components.config_section import Section
from components.pusher.config import Address
from pipeline.core.metadata.location import PASSWORD, PORTS, Database, Location, Tls


def _not_dask(name: object) -> object:
    if name == "dask":
        raise ValueError(
            "dask is refused: tried, Beam's Dask runner loses what finish_bundle hands out, and ignores tags and "
            "windows, all without an error; choose direct, dataflow, flink, spark or portable"
        )
    return name


Engine = Annotated[Literal["direct", "dataflow", "flink", "spark", "portable"], BeforeValidator(_not_dask)]
"""What Beam can run on."""
_NEEDED = {
    "dataflow": "project, region, image and temp_location",
    "flink": "job_endpoint or job_server_jar",
    "spark": "job_endpoint or job_server_jar",
    "portable": "job_endpoint or worker_pools",
}


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


class PipelineConfig(Section):
    """The identity of this pipeline."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)]
    """Names the output folder and, in ML Metadata, everything of this pipeline: small letters, digits, - and _."""


class DirectConfig(Section):
    """Beam on this machine."""

    mode: Literal["auto", "in_memory", "multi_processing"] = "auto"
    """in_memory: in the node's own process. multi_processing: in several processes, those of ExampleGen and
    StatisticsGen forked, those of other nodes Beam's own, which first import everything: four times the CPU on 15,000
    rows. auto: in memory, but ExampleGen and StatisticsGen fork a worker for each 64 MiB of input."""
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
            received = "none" if self.job_endpoint is None else "both"
            raise ValueError(f"expected either job_endpoint or job_server_jar, received {received}")
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
                f"a job service takes one pool, received {len(pools)}; leave job_endpoint out to use them all"
            )
        if endpoint is not None and not pools and not is_here(endpoint):
            raise ValueError(
                f"LOOPBACK workers listen on this machine alone; expected a worker pool for {endpoint}, received none"
            )
        return self


Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class RuntimeConfig(Section):
    """How and where the nodes run; nothing here changes what they compute."""

    output: str = "out"
    """Folder for all output of runs; that of this pipeline is <output>/<name>."""
    artifacts: str | None = None
    """Folder or URL for the artifacts of the nodes, such as gs://bucket/taxi; <output>/<name>/artifacts if not
    given. An engine on other machines must reach it."""
    engine: Engine = "direct"
    """What Beam runs on; `--engine` chooses another for one run. Each has a section of its name."""
    direct: DirectConfig = Field(default_factory=DirectConfig)
    """For `engine: direct`: this machine."""
    dataflow: DataflowConfig | None = None
    """For `engine: dataflow`: Google Cloud."""
    flink: FlinkConfig | None = None
    """For `engine: flink`: Apache Flink."""
    spark: SparkConfig | None = None
    """For `engine: spark`: Apache Spark."""
    portable: PortableConfig | None = None
    """For `engine: portable`: any job service of Beam's, or worker pools alone."""
    beam_args: tuple[str, ...] = ()
    """Further options for Beam, such as --experiments=name; they override the engine's own; a run prints which."""
    parallel_nodes: PositiveInt | None = None
    """Number of nodes that may run at the same time; one per core if not given."""
    vectorised: bool = True
    """Whether the project's columnar executors process the data; false selects TFX's own, row by row."""
    cache: bool = True
    """Whether a node with unchanged inputs and parameters reuses its earlier outputs."""

    @model_validator(mode="after")
    def _has_its_engine(self) -> RuntimeConfig:
        if getattr(self, self.engine) is None:
            needed = _NEEDED[self.engine]
            raise ValueError(f"engine: {self.engine} needs a section {self.engine} with {needed}, and there is none")
        return self


class TlsConfig(Section):
    """How the connection to a database server is encrypted; the server's certificate is always checked."""

    ca: Name
    """File with the certificates of the authorities that sign the server's certificate, in PEM."""
    certificate: Name | None = None
    """File with this client's own certificate, for servers that require one."""
    key: Name | None = None
    """File with its key."""

    @model_validator(mode="after")
    def _are_a_pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("expected certificate and key together, received one of them")
        return self


class MetadataConfig(Section):
    """The ML Metadata store; a server is for pipelines that run on several machines."""

    backend: Literal["sqlite", "postgresql", "mysql"] = "sqlite"
    """sqlite: the file metadata.db in the output folder. mysql: MySQL or MariaDB."""
    host: Name | None = None
    """Name or address of the database server."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its port; without a number, 5432 for postgresql and 3306 for mysql."""
    database: Name | None = None
    """The database, which must exist; the first run creates its tables."""
    user: Name | None = None
    """The user that connects."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = PASSWORD
    """The environment variable with the password, which no file contains."""
    tls: TlsConfig | None = None
    """Encryption of the connection; without it, everything but the password goes in the clear."""

    @model_validator(mode="after")
    def _fits_the_backend(self) -> Self:
        given = [name for name in ("host", "port", "database", "user", "tls") if getattr(self, name) is not None]
        if self.backend == "sqlite" and given:
            raise ValueError(f"expected no {given[0]} for backend sqlite, received one: name the backend of the server")
        for name in ("host", "database", "user"):
            if self.backend != "sqlite" and name not in given:
                raise ValueError(f"expected a {name} for backend {self.backend}, received none")
        return self

    def location(self, root: Path) -> Location:
        """The store of a pipeline whose output folder is `root`."""
        if self.backend == "sqlite":
            return root / "metadata.db"
        tls = Tls(self.tls.ca, self.tls.certificate, self.tls.key) if self.tls else None
        # The validator has seen to it that host, database and user are set.
        host, name, user = self.host or "", self.database or "", self.user or ""
        return Database(self.backend, host, self.port or PORTS[self.backend], name, user, self.password_env, tls)
