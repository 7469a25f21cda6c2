"""The `pipeline` and `runtime` sections: the pipeline's name, and how and where its nodes run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, StringConstraints, model_validator

from components.section import Section
from pipeline.config.engines import DataflowConfig, DirectConfig, FlinkConfig, PortableConfig, SparkConfig


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


class PipelineConfig(Section):
    """Who this pipeline is."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)]
    """Names the output folder and, in ML Metadata, everything of this pipeline: small letters, digits, - and _."""


class RuntimeConfig(Section):
    """How and where the nodes run; nothing in here changes what they compute."""

    output: str = "out"
    """Folder for everything that runs make; this pipeline's lies in <output>/<name>."""
    artifacts: str | None = None
    """Folder or URL for what nodes hand to each other, such as gs://bucket/taxi; <output>/<name>/artifacts if not
    given. An engine on other machines has to reach it."""
    engine: Engine = "direct"
    """What Beam runs on; `--engine` chooses another for one run. Each has a section with its name."""
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
    """Further options for Beam, such as --experiments=name; they win over the engine's own, which is told."""
    parallel_nodes: PositiveInt | None = None
    """Nodes that may run side by side; without a number, one per core."""
    cache: bool = True
    """Whether a node whose inputs and parameters are unchanged takes its earlier outputs."""

    @model_validator(mode="after")
    def _has_its_engine(self) -> RuntimeConfig:
        if getattr(self, self.engine) is None:
            needed = _NEEDED[self.engine]
            raise ValueError(f"engine: {self.engine} needs a section {self.engine} with {needed}, and there is none")
        return self
