"""Builds the pipeline. All nodes are wired here, in order, from raw rows to a pushed model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow_data_validation as tfdv
from tfx.components import ExampleValidator
from tfx.components import StatisticsGen as StockStatisticsGen
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base.base_node import BaseNode
from tfx.orchestration import pipeline

from components.base.node import NodeInputs, Wiring
from components.data_gate.component import DataGate
from components.data_gate.curated_schema import CuratedSchema
from components.data_gate.inferred_schema import SchemaGen
from components.data_gate.plan import GatePlan
from components.evaluator.baseline import baseline
from components.evaluator.component import Evaluator
from components.features import preprocessing
from components.features.plan import FeaturePlan
from components.ingest.component import example_gen
from components.ingest.input_files import FilePatterns
from components.pusher.component import Pusher
from components.pusher.plan import PushPlan
from components.serving.component import InfraValidator
from components.statistics.component import StatisticsGen
from components.trainer import run_fn as trainer_run
from components.trainer.component import Trainer, base_model
from components.transform.component import StockTransform, Transform
from components.transform.executor import BASE_MODEL
from components.tuner.component import Tuner
from components.tuner.plan import tuning_plan
from pipeline.authoring import own_nodes
from pipeline.authoring.config import Config
from pipeline.authoring.config.examples_format import examples_format
from pipeline.authoring.plans import evaluation_plan, make_model_plans, training_plan
from pipeline.core.metadata.connection import to_ir


@dataclass(frozen=True)
class BuildInputs:
    """Inputs of a pipeline in addition to its config: files, digests of code, and options of the engine.

    Attributes:
      source: Input files and their format. None if the rows come from a query.
      schema: Curated schema: a file whose name contains a digest of its content, or its text. None to infer a schema.
      beam_args: Beam options for all nodes.
      worker_beam_args: Further Beam options for columnar nodes, which fork workers if the input is large.
      transform_code: Digest of the code that Transform runs, so that an edit invalidates the cache.
      trainer_code: Digest of the Trainer's code.
      tuner_code: Digest of the Tuner's code.
      evaluator_code: Digest of the Evaluator's code.
      optional: Name of an optional node of the pipeline → its inputs.
      own_components: Imported components, in the order of the section `nodes`.
      managed: Whether a service such as Vertex AI runs the pipeline and manages the metadata. Such a service only
        supports TFX's strategy to select the baseline.
    """

    source: FilePatterns | None
    schema: Path | str | None
    beam_args: tuple[str, ...]
    worker_beam_args: tuple[str, ...]
    transform_code: str
    trainer_code: str
    tuner_code: str
    evaluator_code: str
    optional: Mapping[str, NodeInputs] = field(default_factory=dict)
    own_components: tuple[own_nodes.OwnComponent, ...] = ()
    managed: bool = False


def build(config: Config, inputs: BuildInputs, force_bless: str | None = None) -> pipeline.Pipeline:
    """Build the TFX pipeline of a config, without reading or writing files.

    Args:
      config: Config of the pipeline.
      inputs: Inputs that were resolved for the config.
      force_bless: Reason for blessing the model although thresholds fail. If None, the thresholds decide.
    """
    paths = config.paths()
    plan = training_plan(config)
    features = plan.features

    examples = example_gen(config.source(), inputs.source, examples_format(config))
    examples.with_beam_pipeline_args(list(inputs.worker_beam_args))
    compute = StatisticsGen if config.runtime.is_vectorised("StatisticsGen") else StockStatisticsGen
    options = tfdv.StatsOptions(weight_feature=config.data.weight) if config.data.weight else None
    statistics = compute(examples=examples.outputs["examples"], stats_options=options)
    if config.runtime.is_vectorised("StatisticsGen"):
        statistics.with_beam_pipeline_args(list(inputs.worker_beam_args))
    schema = _schema(inputs.schema, statistics, config.schema_.infer_shapes)
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    gate = DataGate(
        _gate_plan(config, features),
        statistics=statistics.outputs["statistics"],
        anomalies=validator.outputs["anomalies"],
    )
    transform_with = Transform if config.runtime.is_vectorised("Transform") else StockTransform
    base = base_model() if config.training.warm_start else None
    remembered = {BASE_MODEL: base.outputs["model"]} if base and config.features.remembers else {}
    transform = transform_with(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn=preprocessing.PATH,
        custom_config={"plan": features.model_dump_json(), "code": inputs.transform_code},
        disable_statistics=True,
        **remembered,
    ).with_id("Transform")
    if config.runtime.is_vectorised("Transform"):
        transform.with_beam_pipeline_args(list(inputs.worker_beam_args))
    # The gate outputs no artifact. Transform has a control dependency on it, so nothing is transformed or trained
    # before the gate has passed.
    transform.add_upstream_node(gate)
    tuner = None
    if config.tune:
        tuner = Tuner(
            tuning_plan(plan, config.tune),
            inputs.tuner_code,
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=schema.outputs["schema"],
        )
    trainer = Trainer(
        trainer_run.PATH,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        statistics=statistics.outputs["statistics"],
        base_model=base.outputs["model"] if base else None,
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        steps=config.training.steps,
        eval_steps=config.training.eval_steps,
        custom_config={
            "plan": plan.model_dump_json(),
            "code": inputs.trainer_code,
        },
    )
    latest = baseline(candidate=None if inputs.managed else trainer.outputs["model"])
    evaluation = Evaluator(
        evaluation_plan(config, force_bless),
        inputs.evaluator_code,
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        baseline=latest.outputs["model"],
        vectorised=config.runtime.is_vectorised("Evaluator"),
    )
    if config.runtime.is_vectorised("Evaluator"):
        evaluation.with_beam_pipeline_args(list(inputs.worker_beam_args))
    name = config.push.rollout.model_name or config.pipeline.name
    check = InfraValidator(
        config.serving,
        name,
        model=trainer.outputs["model"],
        examples=examples.outputs["examples"],
    )
    checks = config.serving.check != "none"
    nodes = [
        *(examples, statistics, schema, validator, gate),
        *([base] if base and remembered else []),
        transform,
        *([tuner] if tuner else []),
        *([base] if base and not remembered else []),
        *(trainer, latest, evaluation),
    ]
    gates = _build_optional_nodes(config, inputs, nodes, before_push=True)
    variants = [
        gates[node.name].outputs[node.pushes] for node in config.optional_nodes() if node.pushes and node.name in gates
    ]
    push = Pusher(
        PushPlan(push=config.push, model_name=name),
        paths.pushed,
        model=trainer.outputs["model"],
        model_blessing=evaluation.outputs["blessing"],
        infra_blessing=check.outputs["blessing"] if checks else None,
        evaluation=evaluation.outputs["evaluation"],
        edge=variants[0] if variants else None,
        examples=examples.outputs["examples"],
    )
    for gate_node in gates.values():
        push.add_upstream_node(gate_node)
    nodes += [*gates.values(), *([check] if checks else []), push]
    nodes += _build_optional_nodes(config, inputs, nodes, before_push=False).values()
    return pipeline.Pipeline(
        pipeline_name=config.pipeline.name,
        pipeline_root=paths.artifacts,
        components=[*nodes, *own_nodes.connect(config.nodes, inputs.own_components, nodes)],
        enable_cache=config.runtime.cache,
        metadata_connection_config=to_ir(paths.store),
        beam_pipeline_args=list(inputs.beam_args),
    )


def _build_optional_nodes(
    config: Config, inputs: BuildInputs, nodes: Sequence[BaseNode], *, before_push: bool
) -> dict[str, BaseNode]:
    """Build the nodes that sections of the config add after `nodes`.

    Args:
      config: Config of the pipeline.
      inputs: Inputs that were resolved for the config.
      nodes: Nodes that were built before.
      before_push: Whether to build the nodes before the Pusher, or the nodes after it.

    Returns:
      Name → node.
    """
    built: dict[str, BaseNode] = {}
    chosen = [node for node in config.optional_nodes() if node.before_push is before_push]
    for node in chosen:
        known = {component.id: component for component in (*nodes, *built.values())}
        plans, dependencies = make_model_plans(config), inputs.optional[node.name]
        wiring = Wiring(config, plans, dependencies, known, inputs.worker_beam_args, inputs.managed)
        component = node.build(wiring)
        if component is not None:
            built[node.name] = component
            if node.name in config.added_nodes:
                # The plans of built-in nodes already contain the digest.
                component.exec_properties[own_nodes.CODE] = dependencies.code
    return built


def _schema(schema: Path | str | None, statistics: StockStatisticsGen, shapes: bool) -> Any:
    """Return the node that provides the schema.

    Args:
      schema: Curated schema, a file or its text. None to infer a schema.
      statistics: Node from whose statistics a schema is inferred.
      shapes: Whether an inferred schema has shapes. Without shapes, every column may be missing in a row.
    """
    if schema is None:
        return SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=shapes)
    if isinstance(schema, str):
        return CuratedSchema(schema).with_id("SchemaGen")
    return ImportSchemaGen(schema_file=str(schema)).with_id("SchemaGen")


def _gate_plan(config: Config, features: FeaturePlan) -> GatePlan:
    labels = [] if config.features.preprocessing_fn else [label.expression for label in features.labels]
    labels += [label.event_label.expression for label in features.labels if label.event]
    return GatePlan(
        validation=config.validation,
        schema_path=config.schema_.path,
        # A row without a value of a multilabel column does not have any of the classes.
        labels=tuple(label.columns[0] for label in labels if label.is_column and config.data.task != "multilabel"),
        classes=config.data.task in ("binary", "multiclass"),
    )
