"""The whole config, composed of the sections that components define.

The sections of optional nodes, including nodes of installed packages, come from the descriptors of the nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

from pydantic import Field, create_model

from components.base.config_section import Section
from components.base.errors import InputError
from components.base.files import is_remote
from components.base.node import Node, OptionalNode
from components.base.object_store import is_object_store
from components.data_gate.config import SchemaConfig, ValidationConfig
from components.evaluator.config import EvaluationConfig
from components.features.config import OPS, FeaturesConfig
from components.features.image_ops import Image
from components.ingest.config import DataConfig, SampleConfig, SpansConfig, SplitConfig
from components.models.config import ModelConfig
from components.pusher.config import PushConfig
from components.serving.config import ServingConfig
from components.trainer.config import TrainingConfig
from components.tuner.config import TuneConfig
from pipeline.authoring.config.airflow import AirflowConfig
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.authoring.config.notify import NotifyConfig
from pipeline.authoring.config.orchestrators import KubeflowConfig, ScheduleConfig, VertexPipelinesConfig
from pipeline.authoring.config.own_nodes import OwnNodeConfig
from pipeline.authoring.config.runtime import MetadataConfig, PipelineConfig, RuntimeConfig
from pipeline.core.nodes import NODES
from pipeline.core.paths import Paths


class _Config(Section):
    """The config of one pipeline, from its data to the pushed model."""

    added_nodes: ClassVar[tuple[str, ...]] = ()
    """Names of the nodes from installed packages whose sections the config contains."""

    pipeline: PipelineConfig
    data: DataConfig
    schema_: SchemaConfig = Field(default_factory=SchemaConfig, alias="schema")
    validation: ValidationConfig = Field(default_factory=ValidationConfig)
    features: FeaturesConfig
    model: ModelConfig = Field(default_factory=ModelConfig)
    tune: TuneConfig | None = None
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig
    serving: ServingConfig = Field(default_factory=ServingConfig)
    push: PushConfig = Field(default_factory=PushConfig)
    canary: CanaryConfig = Field(default_factory=CanaryConfig)
    nodes: tuple[OwnNodeConfig, ...] = ()
    notify: tuple[NotifyConfig, ...] = ()
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    schedule: ScheduleConfig | None = None
    airflow: AirflowConfig | None = None
    kubeflow: KubeflowConfig | None = None
    vertex: VertexPipelinesConfig | None = None
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # Pickle looks up a class by its name, so a class that was extended at run time must be created again.
        if self.added_nodes:
            return _create_empty, (self.added_nodes,), self.__getstate__()
        return super().__reduce_ex__(protocol)

    def standard_nodes(self) -> dict[str, Node]:
        """Return name → node, for all nodes that the pipeline may have except for the section `nodes`."""
        return {name: NODES[name] for name in (*NODES.built_in, *self.added_nodes)}

    def optional_nodes(self) -> list[OptionalNode]:
        """Return the nodes that sections of this config add to the pipeline."""
        nodes = self.standard_nodes().values()
        return [node for node in nodes if isinstance(node, OptionalNode) and node.is_part(self)]

    def sections(self) -> list[Section]:
        """Return the top-level sections that are set, without lists of sections."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return [value for value in values if isinstance(value, Section)]

    def section(self, name: str) -> Any:
        """Return the section of an optional node, or its default if the config does not contain the section."""
        return getattr(self, name)

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes that the pipeline may have: the standard nodes, then the nodes of `nodes`."""
        return (*self.standard_nodes(), *(node.name for node in self.nodes))

    def source(self) -> DataConfig:
        """Return `data` with the columns of encoded images that ExampleGen checks.

        By default, these are the columns with the operation `image`.
        """
        images = self.data.images
        if images.encoded_columns is not None or self.features.preprocessing_fn:
            return self.data
        columns = [
            column for feature in self.features.declared if isinstance(feature.op, Image) for column in feature.columns
        ]
        if images.path_column is not None:
            columns = [column for column in columns if column != images.column]
        encoded = images.model_copy(update={"encoded_columns": tuple(dict.fromkeys(columns))})
        return self.data.model_copy(update={"images": encoded})

    def data_of(
        self, path: tuple[str, ...], spans: SpansConfig | None = None, *, is_predicted: bool = False
    ) -> DataConfig:
        """Return a section for other rows in the format of `data`, which are not split.

        Args:
          path: Files, folders or patterns.
          spans: Spans to read. By default, the newest span.
          is_predicted: Whether the rows are predicted. They are then joined with the side tables of `data.join`. With
            `data.windows`, they are the history of the series, from which `data.where` selects rows as in training.
        """
        replaced: dict[str, Any] = {
            "path": path,
            "where": None,
            "sample": SampleConfig(),
            "spans": spans or SpansConfig(),
            "split": SplitConfig(train=1, eval=1),
            "bigquery": None,
            "windows": None,
            "join": self.data.join if is_predicted else (),
        }
        if is_predicted and self.data.windows:
            for name in ("where", "split", "windows"):
                del replaced[name]
        return self.source().model_copy(update=replaced)

    def paths(self) -> Paths:
        """Return the absolute paths of this pipeline. Relative paths start at the working directory."""
        root = Path(self.runtime.output).absolute() / self.pipeline.name
        pushed = self.push.directory or str(root / "pushed")
        artifacts = self.runtime.artifacts or str(root / "artifacts")
        if is_object_store(artifacts):
            # TensorFlow and Beam cannot open these URLs: nodes work with copies, see `core/artifact_copies`.
            artifacts = str(root / "artifacts")
        return Paths(root, _absolute(pushed), _absolute(artifacts), self.metadata.location(root))


def _add_sections(base: type[_Config], nodes: Iterable[OptionalNode]) -> type[_Config]:
    fields: dict[str, Any] = {node.section: (node.section_type, node.default) for node in nodes}
    return create_model("Config", __base__=base, __module__=__name__, __doc__=_Config.__doc__, **fields)


if TYPE_CHECKING:
    Config = _Config
else:
    Config = _add_sections(_Config, (node for node in NODES.built_in.values() if isinstance(node, OptionalNode)))
"""The whole config, with the sections of the built-in optional nodes."""


def extend_config(keys: Iterable[str]) -> type[Config]:
    """Return the class of a config with these keys: Config, or Config with sections of installed packages.

    Raises:
      InputError: If there is an unknown key, and a package that adds a node cannot be loaded.
    """
    unknown = set(keys).difference(field.alias or name for name, field in Config.model_fields.items())
    # Import the packages only if a key is unknown, because it could be the section of any of their nodes.
    added = {name: NODES[name] for name in (NODES.added if unknown else ())}
    nodes = {name: node for name, node in added.items() if isinstance(node, OptionalNode) and node.section in unknown}
    return _extend(tuple(nodes)) if nodes else Config


def make_json_schema() -> tuple[dict[str, Any], list[InputError]]:
    """Make the JSON Schema of the config, with the sections, operations and names that installed packages add.

    Returns:
      The schema, and the errors of the packages that cannot be loaded, whose sections and operations it lacks.
    """
    nodes, errors = NODES.load_added()
    schema = _extend(tuple(nodes)).model_json_schema()
    # `load` derives the name of the pipeline from the name of the file.
    schema["required"].remove("pipeline")
    del schema["$defs"]["PipelineConfig"]["required"]
    return schema, [*errors, *OPS.load_added()[1]]


@functools.cache
def _extend(names: tuple[str, ...]) -> type[Config]:
    """Return the class with the sections of nodes from installed packages."""
    nodes = [node for name in names if isinstance(node := NODES[name], OptionalNode)]
    config = _add_sections(Config, nodes)
    config.added_nodes = names
    return config


def _create_empty(names: tuple[str, ...]) -> Config:
    """Return an instance without fields, which pickle restores."""
    config = _extend(names)
    return config.__new__(config)


def _absolute(path: str) -> str:
    return path if is_remote(path) else str(Path(path).absolute())
