"""The sections `pipeline`, `runtime` with the engines that Beam runs on, and `metadata` with the store.

Each engine has a section of its own, so that one config can hold the settings of several.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    SerializeAsAny,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from components.base.config_section import Section
from components.base.files import is_remote
from components.base.registry import validate_name
from components.pusher.config import Address
from pipeline.core.addons import ENGINES
from pipeline.core.metadata.location import PASSWORD, PORTS, Database, Location


def _not_dask(name: object) -> object:
    if name == "dask":
        raise ValueError(
            "dask is refused: Beam's Dask runner loses the output of finish_bundle, and ignores tags and "
            "windows, all without an error; choose direct, dataflow, flink, spark or portable"
        )
    return name


def _validate_engine(value: Any, validate_built_in: ValidatorFunctionWrapHandler) -> Any:
    """Accept the engines of installed packages besides the built-in engines."""
    return validate_name(value, validate_built_in, ENGINES, ENGINES.built_in)


Columnar = Literal["StatisticsGen", "Transform", "Evaluator"]
"""Nodes that have a columnar executor beside TFX's."""
Engine = Annotated[
    Literal["direct", "dataflow", "flink", "spark", "portable"],
    WrapValidator(_validate_engine),
    BeforeValidator(_not_dask),
    SerializeAsAny(),
]
"""The engines of Beam; installed packages add engines to the group `tfx_pipeline.engines`."""
_NEEDED = {
    "dataflow": "project, region, image and temp_location",
    "flink": "job_endpoint or job_server_jar",
    "spark": "job_endpoint or job_server_jar",
    "portable": "job_endpoint",
}


_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Host names of this machine."""


def is_here(address: str) -> bool:
    """Whether a host:port is on this machine."""
    return address.rpartition(":")[0] in LOOPBACK


def _local_file(path: str) -> str:
    if is_remote(path):
        raise ValueError(f"expected a file on this machine, because nothing is downloaded; received {path!r}")
    return path


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    for name, value in labels.items():
        if not _LABEL.fullmatch(f"{name}={value}"):
            raise ValueError(
                "expected small letters, digits, - and _, at most 63 on each side and a letter first, "
                f"received {name}={value}"
            )
    return labels


Bucket = Annotated[str, StringConstraints(pattern=r"^gs://[^/]+(/.*)?$")]
"""A folder in Cloud Storage."""
Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]
"""Labels of Google Cloud's resources, name → value."""
Jar = Annotated[str, AfterValidator(_local_file)]
"""An existing jar file."""


class PipelineConfig(Section):
    """The identity of this pipeline."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)]
    """Names the output folder and, in ML Metadata, everything of this pipeline: small letters, digits, - and _."""


class DirectConfig(Section):
    """Beam on this machine."""

    mode: Literal["auto", "in_memory", "multi_processing"] = "auto"
    """in_memory: in the node's own process. multi_processing: in several processes, forked ones for ExampleGen,
    StatisticsGen, Transform and Evaluator; Beam's own for other nodes, which first import everything. auto: in memory,
    but these four fork a worker for each 64 MiB of input."""
    workers: PositiveInt | None = None
    """Worker processes; with auto, the maximum. Without a number, one per core."""


class DataflowConfig(Section):
    """Google Cloud Dataflow; credentials come from the environment."""

    project: str = Field(min_length=1)
    """The Google Cloud project that is billed."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """The region of the workers, such as us-central1; best that of the data."""
    image: str = Field(min_length=1)
    """The workers' container: this project and its dependencies, on Beam's SDK image. Without an image, each worker
    would install everything when it starts."""
    temp_location: Bucket
    """A gs:// folder for temporary files, which a job does not delete; give it a lifecycle rule."""
    staging_location: Bucket | None = None
    """A gs:// folder for the files of a job; by default <temp_location>/staging."""
    machine_type: str = "n2-standard-4"
    """Machine type of the workers."""
    disk_gb: int = Field(default=50, ge=30)
    """Each worker's disk in GB. It has the container's image, but not the data of the shuffle."""
    workers: PositiveInt | None = None
    """Number of workers at the start of a job; by default, Dataflow decides."""
    max_workers: int = Field(default=10, ge=1, le=4000)
    """Maximum number of workers: a bound on the cost of a job."""
    autoscaling: bool = True
    """Whether Dataflow changes the number of workers by load; otherwise it is always `workers`."""
    public_ips: bool = False
    """Whether workers have addresses on the internet. Without them, the subnetwork needs Private Google Access."""
    network: str | None = None
    """The VPC network; by default that of the project."""
    subnetwork: Annotated[str, StringConstraints(pattern=r"(^|/)regions/[^/]+/subnetworks/[^/]+$")] | None = None
    """Such as regions/us-central1/subnetworks/workers; for a shared VPC the whole URL."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """The account of the workers; by default the project's Compute Engine account, which has many permissions."""
    labels: Labels = Field(default_factory=dict)
    """Name → value on each job, for billing reports; TFX adds its own."""
    shuffle: Literal["service", "workers"] = "service"
    """Where rows are grouped: in Dataflow Shuffle, or on the workers' disks."""
    service_options: tuple[str, ...] = ()
    """Further service options of Dataflow, such as enable_prime."""

    @model_validator(mode="after")
    def _counts_fit(self) -> DataflowConfig:
        if not self.autoscaling and self.workers is None:
            raise ValueError("autoscaling: false keeps the number of workers; expected workers, received none")
        if self.workers is not None and self.workers > self.max_workers:
            raise ValueError(f"expected at most max_workers={self.max_workers} workers, received {self.workers}")
        return self


class JobServerConfig(Section):
    """Common to Flink and Spark: a job server of Beam, and workers in a pool."""

    job_endpoint: Address | None = None
    """A running job server of Beam, as host:port."""
    job_server_jar: Jar | None = None
    """Or the jar of a job server on this machine, which each node starts with java; nothing is downloaded."""
    worker_pool: Address = "localhost:50000"
    """The EXTERNAL worker pool that runs Python on the machine of each of the engine's workers, at the address that
    they use."""
    workers_per_machine: PositiveInt = 1
    """Number of Python processes of the pool on each machine."""
    worker_cache_seconds: float = Field(default=30, ge=0)
    """How long a Python process waits for the next stage of its job before it ends."""
    job_restarts: int = Field(default=2, ge=0)
    """How often a lost job is submitted again: one whose error names a lost machine, worker or connection."""
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
    """With a jar: Flink's address, as host:port; [local] or [auto]: Flink runs inside the job server."""
    parallelism: PositiveInt | None = None
    """Parallelism of each step; by default that of the cluster."""
    rest: Address | None = None
    """Flink's REST API, as host:port, for the checks before a run, for the links to jobs, and to cancel the job of a
    node that has ended; by default `master`."""


class SparkConfig(JobServerConfig):
    """Apache Spark. Beam has no option for its parallelism: it is Spark's spark.default.parallelism."""

    master: Annotated[str, StringConstraints(pattern=r"^(local(\[.+\])?|spark://.+)$")] = "local[*]"
    """With a jar: spark://host:port, or local[N]: a Spark inside the job server, with N threads."""


class PortableConfig(Section):
    """Any engine with Beam's job API."""

    job_endpoint: Address
    """The job service, as host:port."""
    worker_pool: Address | None = None
    """The EXTERNAL worker pool, as host:port, at the address that the job service uses. Default: LOOPBACK, workers in
    the node's own process."""
    job_restarts: int = Field(default=2, ge=0)
    """How often a lost job is submitted again, as for Flink."""
    shared_folders: bool = False
    """Whether the workers' machines see the same folders under the same names as this one, as on a network mount."""

    @model_validator(mode="after")
    def _has_workers(self) -> PortableConfig:
        if self.worker_pool is None and not is_here(self.job_endpoint):
            raise ValueError(
                f"LOOPBACK workers listen only on this machine; expected a worker pool for {self.job_endpoint}, "
                "received none"
            )
        return self


def _local(path: str) -> str:
    wildcards = sorted(set("*?[]\\").intersection(str(Path(path).absolute())))
    if wildcards:
        raise ValueError(
            f"expected a folder whose path has none of * ? [ ] and \\, which TFX reads as a pattern of files, received "
            f"{' '.join(wildcards)} in {Path(path).absolute()}; choose another folder"
        )
    if is_remote(path):
        raise ValueError(
            f"expected a folder on this machine, received the URL {path}; set artifacts and push.base_path to URLs"
        )
    return path


Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class RuntimeConfig(Section):
    """How and where the nodes run; nothing here changes what they compute."""

    output: Annotated[str, AfterValidator(_local)] = "out"
    """Folder on this machine for all output of runs; the folder of this pipeline is <output>/<name>."""
    artifacts: str | None = None
    """Folder or URL for the artifacts of the nodes, such as gs://bucket/taxi; by default <output>/<name>/artifacts. An
    engine on other machines must reach it."""
    engine: Engine = "direct"
    """The engine that Beam runs on; `--engine` selects another for one run. Each has a section of its name."""
    direct: DirectConfig = Field(default_factory=DirectConfig)
    """For `engine: direct`: this machine."""
    dataflow: DataflowConfig | None = None
    """For `engine: dataflow`: Google Cloud."""
    flink: FlinkConfig | None = None
    """For `engine: flink`: Apache Flink."""
    spark: SparkConfig | None = None
    """For `engine: spark`: Apache Spark."""
    portable: PortableConfig | None = None
    """For `engine: portable`: any job service of Beam."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """For an engine of an installed package: its settings."""
    beam_args: tuple[str, ...] = ()
    """Further options for Beam, such as --experiments=name; they override the engine's own; a run prints which."""
    parallel_nodes: PositiveInt | None = None
    """Maximum number of nodes that run at the same time; by default one per core."""
    vectorised: bool | tuple[Columnar, ...] = True
    """Whether the project's columnar executors process the data, or a list of the nodes in which they do; in the others
    TFX's own do, row by row."""
    cache: bool = True
    """Whether a node with unchanged inputs and parameters reuses its earlier outputs."""

    def is_vectorised(self, node: Columnar) -> bool:
        """Whether a node has the project's executor rather than TFX's."""
        return self.vectorised if isinstance(self.vectorised, bool) else node in self.vectorised

    @field_validator("engine_options")
    @classmethod
    def _check_engine_options(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        engine = info.data.get("engine")
        if engine is not None and engine not in ENGINES.built_in:
            ENGINES[engine].section_type.model_validate(options)
        return options

    @model_validator(mode="after")
    def _has_its_engine(self) -> RuntimeConfig:
        if self.engine in ENGINES.built_in and self.engine_options:
            raise ValueError(f"engine_options: expected none with engine: {self.engine}, which has its own section")
        if self.engine in ENGINES.built_in and getattr(self, self.engine) is None:
            needed = _NEEDED[self.engine]
            raise ValueError(f"engine: {self.engine} needs a section {self.engine} with {needed}, and there is none")
        return self


class MetadataConfig(Section):
    """The ML Metadata store; a server is for pipelines that run on several machines."""

    backend: Literal["sqlite", "postgresql", "mysql"] = "sqlite"
    """sqlite: the file metadata.db in the output folder. mysql: MySQL or MariaDB."""
    host: Name | None = None
    """Name or address of the database server. The connection is not encrypted: outside a trusted network, name the
    local address of a proxy that adds TLS."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its port; without a number, 5432 for postgresql and 3306 for mysql."""
    database: Name | None = None
    """The database, which must exist; the first run creates its tables."""
    user: Name | None = None
    """The user that connects."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = PASSWORD
    """The environment variable with the password, which no file contains."""

    @model_validator(mode="after")
    def _fits_the_backend(self) -> Self:
        set_fields = [name for name in ("host", "port", "database", "user") if getattr(self, name) is not None]
        if self.backend == "sqlite" and set_fields:
            raise ValueError(
                f"expected no {set_fields[0]} for backend sqlite, received one: name the backend of the server"
            )
        for name in ("host", "database", "user"):
            if self.backend != "sqlite" and name not in set_fields:
                raise ValueError(f"expected a {name} for backend {self.backend}, received none")
        return self

    def location(self, root: Path) -> Location:
        """Return the store of a pipeline whose output folder is `root`."""
        if self.backend == "sqlite":
            return root / "metadata.db"
        # The validator requires host, database and user.
        host, name, user = self.host or "", self.database or "", self.user or ""
        return Database(self.backend, host, self.port or PORTS[self.backend], name, user, self.password_env)
