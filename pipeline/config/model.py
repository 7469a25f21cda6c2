"""The whole config: each section is owned by the component that needs it, and composed here."""

from __future__ import annotations

from pydantic import Field

from components.data_gate.config import SchemaConfig, ValidationConfig
from components.evaluator.config import EvaluationConfig
from components.features.config import FeaturesConfig
from components.ingest.config import DataConfig
from components.models.config import ModelConfig
from components.pusher.config import PushConfig
from components.section import Section
from components.serving.config import ServingConfig
from components.trainer.config import TrainingConfig
from components.tuner.config import TuneConfig
from pipeline.config.kubeflow import KubeflowConfig
from pipeline.config.metadata import MetadataConfig
from pipeline.config.runtime import PipelineConfig, RuntimeConfig
from pipeline.config.schedule import ScheduleConfig
from pipeline.config.vertex import VertexPipelinesConfig


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
    push: PushConfig = Field(default_factory=PushConfig)
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    schedule: ScheduleConfig | None = None
    kubeflow: KubeflowConfig | None = None
    vertex: VertexPipelinesConfig | None = None
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)
