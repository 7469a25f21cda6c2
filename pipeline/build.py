"""The pipeline: every node is wired here and nowhere else. Reads top to bottom, from raw rows to a pushed model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tfx.components import ExampleValidator, SchemaGen, StatisticsGen, Trainer, Transform
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.compiler import compiler
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.orchestration import pipeline
from tfx.proto import trainer_pb2
from tfx.proto.orchestration import pipeline_pb2

from components import user_code
from components.data_gate.component import DataGate
from components.data_gate.curated import CuratedSchema
from components.data_gate.plan import GatePlan
from components.evaluator import predictions
from components.evaluator.baseline import baseline
from components.evaluator.component import Evaluator
from components.evaluator.plan import EvaluationPlan
from components.features import names, preprocessing
from components.features.plan import FeaturePlan
from components.ingest import source
from components.ingest.component import example_gen
from components.pusher.component import Pusher
from components.pusher.plan import PushPlan
from components.serving.component import InfraValidator
from components.trainer import run as trainer_run
from components.trainer.base import base_model
from components.trainer.executor import Executor
from components.trainer.plan import TrainingPlan
from components.trainer.target import PREDICTION_KEY
from components.tuner.component import Tuner
from components.tuner.plan import tuning_plan
from pipeline.config import Config
from pipeline.engines import beam_args, ingest_args
from pipeline.metadata.connection import to_ir
from pipeline.paths import Paths


def build(config: Config, force_bless: str | None = None, *, managed: bool = False) -> pipeline.Pipeline:
    """The TFX pipeline of a config.

    Args:
      config: the config.
      force_bless: why the model is blessed whatever the thresholds say; None if they decide.
      managed: whether a service runs it that keeps the metadata itself, and whose containers see no file of this
        machine: a curated schema goes along as text, and the baseline is looked up as that service can.
    """
    paths = Paths.of(config)
    features = FeaturePlan(features=config.features, label=config.data.label, task=config.data.task)
    own_model = config.model.run_fn is not None

    examples = example_gen(config.data)
    examples.with_beam_pipeline_args(ingest_args(config.runtime, source.local_size(config.data)))
    statistics = StatisticsGen(examples=examples.outputs["examples"])
    schema = _schema(config, paths, statistics, managed)
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    gate = DataGate(
        _gate_plan(config, features),
        statistics=statistics.outputs["statistics"],
        anomalies=validator.outputs["anomalies"],
    )
    transform = Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn=preprocessing.PATH,
        custom_config={"plan": features.model_dump_json(), "code": _features_code(config)},
        disable_statistics=True,
    )
    # The gate hands on no data, only its leave: nothing is transformed or trained before it has spoken.
    transform.add_upstream_node(gate)
    plan = TrainingPlan(features=features, model=config.model, training=config.training)
    tuner = None
    if config.tune:
        tuner = Tuner(
            tuning_plan(plan, config.tune),
            _model_code(config, "components.tuner"),
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=schema.outputs["schema"],
        )
    base = base_model() if config.training.warm_start else None
    trainer = Trainer(
        custom_executor_spec=ExecutorClassSpec(Executor),
        run_fn=trainer_run.PATH,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        base_model=base.outputs["model"] if base else None,
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        train_args=trainer_pb2.TrainArgs(num_steps=config.training.steps),
        eval_args=trainer_pb2.EvalArgs(num_steps=config.training.eval_steps),
        custom_config={
            "plan": plan.model_dump_json(),
            "code": _model_code(config),
        },
    )
    latest = baseline(candidate=None if managed else trainer.outputs["model"])
    evaluation = Evaluator(
        EvaluationPlan(
            evaluation=config.evaluation,
            task=config.data.task,
            force_bless=force_bless,
            predictions=config.serving.examples,
        ),
        user_code.digest("components.evaluator"),
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        baseline=latest.outputs["model"],
        label_key=config.evaluation.label_key or names.LABEL,
        preprocessing=config.evaluation.preprocessing if own_model else ("transform_labels",),
        prediction_key=None if own_model else PREDICTION_KEY[config.data.task],
    )
    name = config.push.rollout.model_name or config.pipeline.name
    check = InfraValidator(
        config.serving,
        name,
        model=trainer.outputs["model"],
        examples=examples.outputs["examples"],
        evaluation=evaluation.outputs["evaluation"],
        predictions=predictions.FILE,
    )
    checks = config.serving.check != "none"
    push = Pusher(
        PushPlan(push=config.push, model_name=name),
        paths.pushed,
        model=trainer.outputs["model"],
        model_blessing=evaluation.outputs["blessing"],
        infra_blessing=check.outputs["blessing"] if checks else None,
        evaluation=evaluation.outputs["evaluation"],
        examples=examples.outputs["examples"],
    )

    return pipeline.Pipeline(
        pipeline_name=config.pipeline.name,
        pipeline_root=paths.artifacts,
        components=[
            *(examples, statistics, schema, validator, gate, transform),
            *([tuner] if tuner else []),
            *([base] if base else []),
            *(trainer, latest, evaluation),
            *([check] if checks else []),
            push,
        ],
        enable_cache=config.runtime.cache,
        metadata_connection_config=to_ir(paths.store),
        beam_pipeline_args=beam_args(config.runtime),
    )


def compile_pipeline(config: Config, force_bless: str | None = None) -> bytes:
    """The pipeline of a config as TFX's IR, serialized; its run context carries the whole config into ML Metadata."""
    compiled: pipeline_pb2.Pipeline = compiler.Compiler().compile(build(config, force_bless))
    told = config.model_dump_json(by_alias=True)
    for node in compiled.nodes:
        for context in node.pipeline_node.contexts.contexts:
            if context.type.name == "pipeline_run":
                context.properties["config"].field_value.string_value = told
    return bytes(compiled.SerializeToString(deterministic=True))


def _schema(config: Config, paths: Paths, statistics: StatisticsGen, managed: bool) -> Any:
    """The curated schema, or one inferred from the training split in which every column may be missing."""
    if config.schema_.path is None:
        return SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=False)
    if managed:
        return CuratedSchema(Path(config.schema_.path).read_text(encoding="utf-8")).with_id("SchemaGen")
    return ImportSchemaGen(schema_file=str(_frozen(Path(config.schema_.path), paths))).with_id("SchemaGen")


def _frozen(schema: Path, paths: Paths) -> Path:
    """A copy under the name of its content: TFX's cache looks at the path alone, and would miss an edited schema."""
    content = schema.read_bytes()
    copy = paths.root / "artifacts" / "curated" / f"{schema.stem}-{hashlib.sha256(content).hexdigest()[:16]}.pbtxt"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        beside = copy.with_suffix(".partial")
        beside.write_bytes(content)
        beside.replace(copy)
    return copy


def _gate_plan(config: Config, features: FeaturePlan) -> GatePlan:
    label = None if config.features.preprocessing_fn else features.label_expression()
    return GatePlan(
        validation=config.validation,
        schema_path=config.schema_.path,
        label=label.text if label and label.is_column else None,
        classes=config.data.task != "regression",
    )


def _features_code(config: Config) -> str:
    """A digest of the code that Transform runs, so that the cache sees an edit of ours or of the user's."""
    return user_code.digest("components.features", *_module(config.features.preprocessing_fn))


def _model_code(config: Config, *more: str) -> str:
    """The same for the Trainer; and for the Tuner, which runs `more` beside what the Trainer does."""
    ours = ("components.features", "components.models", "components.trainer", *more)
    return user_code.digest(*ours, *_module(config.model.run_fn or config.model.build))


def _module(function: str | None) -> tuple[str, ...]:
    return () if function is None else (user_code.module_of(function),)
