"""The sections `pipeline`, `runtime` (with the engines on which Beam runs) and `metadata`.

Every engine has a separate section, so that one config can contain the settings of several engines.
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
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from components.base.config_section import OrAddedName, Section
from components.base.files import is_remote
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


Columnar = Literal["StatisticsGen", "Transform", "Evaluator"]
"""Nodes for which this project has a columnar executor as an alternative to TFX's executor."""
Engine = Annotated[
    Literal["direct", "dataflow", "flink", "spark", "portable"], OrAddedName(ENGINES), BeforeValidator(_not_dask)
]
"""Engines on which Beam runs. Installed packages add engines to the entry point group `tfx_pipeline.engines`."""
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
    """Check whether an address, host:port, is on this machine."""
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
"""URL of a folder in Cloud Storage."""
Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]
"""Labels of Google Cloud resources: name → value."""
Jar = Annotated[str, AfterValidator(_local_file)]
"""Path of a jar file on this machine."""


class PipelineConfig(Section):
    """The identity of this pipeline."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)]
    """Name of the pipeline, in lower-case letters, digits, - and _. It is the name of the output folder, and identifies
    the runs and models of the pipeline in ML Metadata."""


class DirectConfig(Section):
    """Beam on this machine."""

    mode: Literal["auto", "in_memory", "multi_processing"] = "auto"
    """Where Beam runs. in_memory: in the process of the node; multi_processing: in several processes, which ExampleGen,
    StatisticsGen, Transform and Evaluator fork, and which Beam starts for other nodes, so that they first import all
    packages; auto: in the process of the node, but these four nodes fork one worker per 64 MiB of input."""
    workers: PositiveInt | None = None
    """Number of worker processes; with `mode: auto`, the maximum number. By default, one per core."""


class DataflowConfig(Section):
    """Google Cloud Dataflow. Credentials come from the environment."""

    project: str = Field(min_length=1)
    """Google Cloud project that is billed."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+$")]
    """Region of the workers, such as us-central1. Choose the region of the data."""
    image: str = Field(min_length=1)
    """Container image of the workers: Beam's SDK image with this project and its dependencies. It is required, because
    workers would otherwise install all packages when they start."""
    temp_location: Bucket
    """Folder for temporary files, gs://. Jobs do not delete these files, so the bucket needs a lifecycle rule."""
    staging_location: Bucket | None = None
    """Folder for the files of jobs, gs://. By default, <temp_location>/staging."""
    machine_type: str = "n2-standard-4"
    """Machine type of the workers."""
    disk_gb: int = Field(default=50, ge=30)
    """Disk size of a worker in GB. The disk contains the container image, and with `shuffle: workers` the shuffled
    data."""
    workers: PositiveInt | None = None
    """Number of workers at the start of a job. By default, Dataflow decides."""
    max_workers: int = Field(default=10, ge=1, le=4000)
    """Maximum number of workers, which limits the cost of a job."""
    autoscaling: bool = True
    """Whether Dataflow adapts the number of workers to the load. If false, the number is always `workers`."""
    public_ips: bool = False
    """Whether workers have public IP addresses. If false, the subnetwork needs Private Google Access."""
    network: str | None = None
    """VPC network of the workers. By default, the default network of the project."""
    subnetwork: Annotated[str, StringConstraints(pattern=r"(^|/)regions/[^/]+/subnetworks/[^/]+$")] | None = None
    """Subnetwork of the workers, such as regions/us-central1/subnetworks/workers. For a shared VPC, the whole URL."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Service account of the workers. By default, the project's Compute Engine account, which has many permissions."""
    labels: Labels = Field(default_factory=dict)
    """Label → value of every job, for billing reports. TFX adds further labels."""
    shuffle: Literal["service", "workers"] = "service"
    """Where rows are grouped. service: in Dataflow Shuffle; workers: on the disks of the workers."""
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
    """Settings common to Flink and Spark: a Beam job server, and workers in a pool."""

    job_endpoint: Address | None = None
    """Address of a running Beam job server, host:port."""
    job_server_jar: Jar | None = None
    """Path of the jar of a Beam job server on this machine, as an alternative to `job_endpoint`. Every node starts a
    job server with java. Nothing is downloaded."""
    worker_pool: Address = "localhost:50000"
    """Address of the EXTERNAL worker pool, host:port, as seen from the engine's workers. A pool must run on the machine
    of every worker; it runs the Python code."""
    workers_per_machine: PositiveInt = 1
    """Number of Python processes of the pool per machine."""
    worker_cache_seconds: float = Field(default=30, ge=0)
    """Time that a Python process waits for the next stage of its job before it ends, in seconds."""
    job_restarts: int = Field(default=2, ge=0)
    """Maximum number of times that a lost job is submitted again. A job is lost if its error names a lost machine,
    worker or connection."""
    shared_folders: bool = False
    """Whether the engine's machines have the same folders at the same paths as this machine, for example on a network
    mount. If false, data and artifacts must be URLs, unless the engine runs on this machine."""

    @model_validator(mode="after")
    def _one_server(self) -> JobServerConfig:
        if (self.job_endpoint is None) == (self.job_server_jar is None):
            received = "none" if self.job_endpoint is None else "both"
            raise ValueError(f"expected either job_endpoint or job_server_jar, received {received}")
        return self


class FlinkConfig(JobServerConfig):
    """Apache Flink."""

    master: str = "[auto]"
    """With `job_server_jar`: address of Flink, host:port. With [local] or [auto], Flink runs inside the job server."""
    parallelism: PositiveInt | None = None
    """Parallelism of the steps. By default, the default parallelism of the cluster."""
    rest: Address | None = None
    """Address of Flink's REST API, host:port. It is used for checks before a run, for links to jobs, and to cancel the
    job of a node that has ended. By default, `master`."""


class SparkConfig(JobServerConfig):
    """Apache Spark. Set spark.default.parallelism in Spark, because Beam does not have an option for it."""

    master: Annotated[str, StringConstraints(pattern=r"^(local(\[.+\])?|spark://.+)$")] = "local[*]"
    """With `job_server_jar`: address of Spark, spark://host:port. With local[N], Spark runs inside the job server, with
    N threads."""


class PortableConfig(Section):
    """Any engine that implements Beam's job API."""

    job_endpoint: Address
    """Address of the job service, host:port."""
    worker_pool: Address | None = None
    """Address of the EXTERNAL worker pool, host:port, as seen from the job service. By default, LOOPBACK: workers run
    in the process of the node."""
    job_restarts: int = Field(default=2, ge=0)
    """Maximum number of times that a lost job is submitted again, as for Flink."""
    shared_folders: bool = False
    """Whether the workers' machines have the same folders at the same paths as this machine, for example on a network
    mount."""

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
    """How and where the nodes run. These settings do not change what the nodes compute."""

    output: Annotated[str, AfterValidator(_local)] = "out"
    """Folder on this machine for all output of runs. A pipeline writes to <output>/<name>."""
    artifacts: str | None = None
    """Folder or URL for the artifacts of the nodes, such as gs://bucket/taxi, s3://bucket/taxi or az://container/taxi.
    By default, <output>/<name>/artifacts. With s3:// and az://, that folder has copies, which the nodes work with, so
    the engine must run on this machine. With another value, an engine on other machines must have access to it."""
    engine: Engine = "direct"
    """Engine on which Beam runs. `--engine` selects another engine for a single run. The section with the name of the
    engine contains its settings."""
    direct: DirectConfig = Field(default_factory=DirectConfig)
    """Settings for `engine: direct`, which runs on this machine."""
    dataflow: DataflowConfig | None = None
    """Settings for `engine: dataflow`, which runs on Google Cloud."""
    flink: FlinkConfig | None = None
    """Settings for `engine: flink`, which runs on Apache Flink."""
    spark: SparkConfig | None = None
    """Settings for `engine: spark`, which runs on Apache Spark."""
    portable: PortableConfig | None = None
    """Settings for `engine: portable`, which uses any Beam job service."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Settings for an engine of an installed package."""
    beam_args: tuple[str, ...] = ()
    """Further Beam options, such as --experiments=name. They override the options that the engine sets. A run prints
    the overridden options."""
    parallel_nodes: PositiveInt | None = None
    """Maximum number of nodes that run at the same time. By default, one per core."""
    vectorised: bool | tuple[Columnar, ...] = True
    """Whether this project's columnar executors process the data, or a list of the nodes with columnar executors. The
    other nodes use TFX's executors, which process the data row by row."""
    cache: bool = True
    """Whether a node with unchanged inputs and parameters reuses its earlier outputs."""

    def is_vectorised(self, node: Columnar) -> bool:
        """Check whether a node uses the columnar executor of this project instead of TFX's executor."""
        return self.vectorised if isinstance(self.vectorised, bool) else node in self.vectorised

    @field_validator("beam_args")
    @classmethod
    def _run_their_job(cls, beam_args: tuple[str, ...]) -> tuple[str, ...]:
        if template := next((option for option in beam_args if option.startswith("--template_location")), None):
            raise ValueError(
                f"expected options with which a node's job runs, received {template}, with which Beam only writes a "
                "template; use --dataflow_job_file, which writes the same template and runs the job"
            )
        return beam_args

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
    """The ML Metadata store. Pipelines that run on several machines need a database server."""

    backend: Literal["sqlite", "postgresql", "mysql"] = "sqlite"
    """Database of the store. sqlite: the file metadata.db in the output folder; mysql: MySQL or MariaDB."""
    host: Name | None = None
    """Name or address of the database server. The connection is not encrypted. Outside a trusted network, use the local
    address of a proxy that adds TLS."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the database server. By default, 5432 for postgresql and 3306 for mysql."""
    database: Name | None = None
    """Name of the database, which must exist. The first run creates its tables."""
    user: Name | None = None
    """User of the database."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = PASSWORD
    """Name of the environment variable with the password. Passwords are never written to files."""

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
