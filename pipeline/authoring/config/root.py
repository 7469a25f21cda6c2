"""The whole config: each section is owned by the component that needs it, and composed here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from components.base.config_section import Section
from components.base.files import is_remote
from components.data_gate.config import SchemaConfig, ValidationConfig
from components.edge.config import EdgeConfig
from components.evaluator.config import EvaluationConfig
from components.features.config import FeaturesConfig
from components.features.image_ops import Image
from components.ingest.config import DataConfig, SpansConfig, SplitConfig
from components.models.config import ModelConfig
from components.monitor.config import MonitorConfig
from components.predictor.config import PredictConfig
from components.pusher.config import PushConfig
from components.serving.config import ServingConfig
from components.trainer.config import TrainingConfig
from components.tuner.config import TuneConfig
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.authoring.config.notify import NotifyConfig
from pipeline.authoring.config.orchestrators import KubeflowConfig, ScheduleConfig, VertexPipelinesConfig
from pipeline.authoring.config.own_nodes import OwnNodeConfig
from pipeline.authoring.config.runtime import MetadataConfig, PipelineConfig, RuntimeConfig
from pipeline.core.nodes import NODES
from pipeline.core.paths import Paths


class Config(Section):
    """One pipeline, from its data to where it is pushed."""

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
    edge: EdgeConfig = ()
    push: PushConfig = Field(default_factory=PushConfig)
    canary: CanaryConfig = Field(default_factory=CanaryConfig)
    predict: PredictConfig | None = None
    monitor: MonitorConfig | None = None
    nodes: tuple[OwnNodeConfig, ...] = ()
    notify: tuple[NotifyConfig, ...] = ()
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    schedule: ScheduleConfig | None = None
    kubeflow: KubeflowConfig | None = None
    vertex: VertexPipelinesConfig | None = None
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)

    def node_names(self) -> tuple[str, ...]:
        """Every node that the pipeline may have: the standard ones, then those of `nodes`."""
        return (*NODES, *(node.name for node in self.nodes))

    def predicted_data(self) -> DataConfig | None:
        """Return the rows of the section `predict`, read as `data` says; None without the section."""
        return None if self.predict is None else self.data_of(self.predict.path, self.predict.spans)

    def source(self) -> DataConfig:
        """Return `data` with the columns of images that ingest checks, by default those of the operation `image`."""
        images = self.data.images
        if images.encoded_columns is not None or self.features.preprocessing_fn:
            return self.data
        columns = [column for each in self.features.declared if isinstance(each.op, Image) for column in each.columns]
        if images.path_column is not None:
            columns = [column for column in columns if column != images.column]
        encoded = images.model_copy(update={"encoded_columns": tuple(dict.fromkeys(columns))})
        return self.data.model_copy(update={"images": encoded})

    def data_of(self, path: tuple[str, ...], spans: SpansConfig | None = None) -> DataConfig:
        """Other rows, which are read as `data` says, and have no splits."""
        replaced = {
            "path": path,
            "spans": spans or SpansConfig(),
            "split": SplitConfig(train=1, eval=1),
            "bigquery": None,
        }
        return self.source().model_copy(update=replaced)

    def paths(self) -> Paths:
        """Return the absolute paths of this pipeline; relative ones of the config start at the working directory."""
        root = Path(self.runtime.output).absolute() / self.pipeline.name
        pushed = self.push.directory or str(root / "pushed")
        artifacts = self.runtime.artifacts or str(root / "artifacts")
        return Paths(root, _absolute(pushed), _absolute(artifacts), self.metadata.location(root))


def _absolute(path: str) -> str:
    return path if is_remote(path) else str(Path(path).absolute())
