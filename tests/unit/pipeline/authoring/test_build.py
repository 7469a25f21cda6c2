"""Tests for the nodes of a pipeline: their order, their dependencies, and the parameters that a section changes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tfx.components.statistics_gen.executor import Executor as StockStatisticsExecutor
from tfx.proto.orchestration import pipeline_pb2

from components.base import recorded_config
from components.evaluator.executor import Executor as EvaluatorExecutor
from components.evaluator.executor import StockExecutor as StockEvaluatorExecutor
from components.statistics.executor import Executor as StatisticsExecutor
from components.transform.executor import Executor as TransformExecutor
from components.transform.executor import StockExecutor as StockTransformExecutor
from pipeline.authoring.build import build
from pipeline.authoring.config import Config, load
from pipeline.core.nodes import NODES
from pipeline.orchestration.compiler import compile_pipeline, resolve_inputs


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("fare,tips,company\n" + "\n".join(f"{i}.5,{i % 4},c{i % 3}" for i in range(20)) + "\n")
    return str(path)


REQUIRED_NODES = set(NODES) - {"Tuner", "BaseModel", "EdgeExporter", "Predictor", "Monitor"}
"""Nodes that do not require a section in the config."""


def load_small_config(tmp_path: Path, rows: str, *assignments: str) -> Config:
    config = tmp_path / "small.yaml"
    config.write_text(
        f"data: {{path: {rows}, label: tips > 0.2 * fare}}\n"
        "features: {columns: {fare: z_score, company: vocab}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"runtime: {{output: {tmp_path / 'out'}}}\n"
    )
    return load(str(config), assignments).config


def compile_nodes(tmp_path: Path, rows: str, *assignments: str) -> Any:
    ir = compile_pipeline(load_small_config(tmp_path, rows, *assignments))
    return {node.pipeline_node.node_info.id: node.pipeline_node for node in pipeline_pb2.Pipeline.FromString(ir).nodes}


def read_parameter(node: Any, name: str) -> str:
    return str(node.parameters.parameters[name].field_value.string_value)


def test_required_nodes_have_the_expected_dependencies(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows)
    assert set(nodes) == REQUIRED_NODES
    assert "DataGate" in nodes["Transform"].upstream_nodes, "nothing is transformed before the gate has passed"
    assert set(nodes["InfraValidator"].upstream_nodes) == {"ExampleGen", "Trainer"}, "it runs beside the Evaluator"
    assert set(nodes["Pusher"].upstream_nodes) == {"ExampleGen", "Trainer", "Evaluator", "InfraValidator"}


def test_descriptors_have_the_outputs_and_dependencies_of_the_nodes(tmp_path: Path, rows: str) -> None:
    config = load_small_config(
        tmp_path,
        rows,
        "tune={learning_rate: {log: [0.001, 0.1]}}",
        "training.warm_start=true",
        "features.columns.company={vocab: {keep_runs: 2}}",
        "edge=[{quantize: int8}]",
        f"predict={{path: {rows}}}",
        "monitor={requests: log}",
    )
    nodes = {node.id: node for node in build(config, resolve_inputs(config)).components}
    assert nodes.keys() == NODES.keys()
    for name, node in nodes.items():
        assert {upstream_node.id for upstream_node in node.upstream_nodes} == set(NODES[name].upstream), name
        if NODES[name].only_looks_up:
            assert "model" in node.outputs
        else:
            assert set(node.outputs) == set(NODES[name].outputs), name


def test_edge_exporter_precedes_the_push(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows, "edge=[{quantize: int8}]")
    assert set(nodes) == REQUIRED_NODES | {"EdgeExporter"}
    assert set(nodes["EdgeExporter"].upstream_nodes) == set(NODES["EdgeExporter"].upstream)
    assert "EdgeExporter" in nodes["Pusher"].upstream_nodes
    assert '"quantize":"int8"' in read_parameter(nodes["EdgeExporter"], "plan")


def test_predictor_follows_the_push(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows, f"predict={{path: {rows}, columns: [fare]}}")
    assert set(nodes) == set(NODES) - {"Tuner", "BaseModel", "EdgeExporter", "Monitor"}
    assert list(nodes["Predictor"].upstream_nodes) == ["Pusher"]
    assert '"columns":["fare"]' in read_parameter(nodes["Predictor"], "plan")


def test_evaluated_model_is_pushed_without_a_serving_check(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows, "serving.check=none")
    assert set(nodes) == REQUIRED_NODES - {"InfraValidator"}
    assert set(nodes["Pusher"].upstream_nodes) == {"ExampleGen", "Trainer", "Evaluator"}


def test_section_changes_only_the_nodes_that_depend_on_it(tmp_path: Path, rows: str) -> None:
    before = compile_nodes(tmp_path, rows)
    changes = {
        "evaluation.thresholds.auc.min=0.6": {"Evaluator"},
        "training.steps=7": {"Trainer"},
        # The Evaluator does not compare the probabilities of a weighted model with the prior.
        "training.class_weights=balanced": {"Trainer", "Evaluator"},
        "model.hidden=[3]": {"Trainer"},
        "features.columns.fare=log": {"Transform", "Trainer"},
        "schema.infer_shapes=true": {"SchemaGen"},
        "validation.min_rows=2": {"DataGate"},
        "data.split={train: 3, eval: 1}": {"ExampleGen"},
        "serving.max_p99_ms=5": {"InfraValidator"},
        "push.directory=elsewhere": {"Pusher"},
        "push.keep=2": {"Pusher"},
    }
    for change, affected in changes.items():
        after = compile_nodes(tmp_path, rows, change)
        changed = {name for name in before if before[name].parameters != after[name].parameters}
        assert changed == affected, change


def test_tuner_precedes_the_trainer_and_depends_on_the_trial_plan(tmp_path: Path, rows: str) -> None:
    tune = "tune={learning_rate: {log: [0.001, 0.1]}, hidden: {choice: [[4], [8, 4]]}}"
    before = compile_nodes(tmp_path, rows, tune)
    assert set(before) == REQUIRED_NODES | {"Tuner"}
    assert "Tuner" in before["Trainer"].upstream_nodes
    assert "Transform" in before["Tuner"].upstream_nodes
    changes = {
        "tune.trials=3": {"Tuner"},
        "tune.steps=7": {"Tuner"},
        "training.strategy.kind=mirrored": {"Trainer"},
        "training.checkpoint.every_steps=7": {"Trainer"},
        "training.evaluator=true": {"Trainer"},
        "training.steps=7": {"Tuner", "Trainer"},
        "model.dropout=0.1": {"Tuner", "Trainer"},
    }
    for change, affected in changes.items():
        after = compile_nodes(tmp_path, rows, tune, change)
        assert {name for name in before if before[name].parameters != after[name].parameters} == affected, change


def test_warm_start_looks_up_a_model_of_an_earlier_run(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows, "training.warm_start=true")
    assert set(nodes) == REQUIRED_NODES | {"BaseModel"}
    assert "BaseModel" in nodes["Trainer"].upstream_nodes
    assert not nodes["BaseModel"].upstream_nodes, "it is looked up before there is a candidate"
    assert "BaseModel" not in nodes["LatestBlessedModel"].upstream_nodes


def test_config_is_recorded_with_the_run(tmp_path: Path, rows: str) -> None:
    for node in compile_nodes(tmp_path, rows).values():
        (run,) = [context for context in node.contexts.contexts if context.type.name == "pipeline_run"]
        texts = {name: value.field_value.string_value for name, value in run.properties.items()}
        assert '"label":"tips > 0.2 * fare"' in (recorded_config.join(texts) or "")
        # An index of the PostgreSQL schema rejects texts of more than 2,704 bytes.
        assert all(len(text.encode()) <= 2400 for text in texts.values())


def test_edited_schema_changes_the_parameter(tmp_path: Path, rows: str) -> None:
    schema = tmp_path / "mine.pbtxt"
    schema.write_text('feature { name: "fare" type: FLOAT }\n')
    first = read_parameter(compile_nodes(tmp_path, rows, f"schema.path={schema}")["SchemaGen"], "schema_file")
    unchanged = read_parameter(compile_nodes(tmp_path, rows, f"schema.path={schema}")["SchemaGen"], "schema_file")
    schema.write_text('feature { name: "fare" type: INT }\n')
    edited = read_parameter(compile_nodes(tmp_path, rows, f"schema.path={schema}")["SchemaGen"], "schema_file")
    assert first == unchanged != edited
    assert Path(edited).read_text() == schema.read_text()


def test_cache_can_be_turned_off(tmp_path: Path, rows: str) -> None:
    nodes = compile_nodes(tmp_path, rows, "runtime.cache=false")
    assert not any(node.execution_options.caching_options.enable_cache for node in nodes.values())


@pytest.mark.parametrize(
    ("setting", "vectorised"),
    [
        ("true", ["StatisticsGen", "Transform", "Evaluator"]),
        ("false", []),
        ("[Transform]", ["Transform"]),
    ],
)
def test_columnar_nodes_fork_workers_for_a_large_input(
    tmp_path: Path, rows: str, setting: str, vectorised: list[str]
) -> None:
    config = load_small_config(tmp_path, rows, f"runtime.vectorised={setting}")
    inputs = dataclasses.replace(resolve_inputs(config), worker_beam_args=("--direct_num_workers=3",))
    nodes = {node.id: node for node in build(config, inputs).components}
    forked = {
        name
        for name, node in nodes.items()
        if "--direct_num_workers=3" in getattr(node.executor_spec, "beam_pipeline_args", ())
    }
    assert forked == {"ExampleGen", *vectorised}
    executors = {
        "StatisticsGen": (StockStatisticsExecutor, StatisticsExecutor),
        "Transform": (StockTransformExecutor, TransformExecutor),
        "Evaluator": (StockEvaluatorExecutor, EvaluatorExecutor),
    }
    for name, (stock, ours) in executors.items():
        assert nodes[name].executor_spec.executor_class == (ours if name in vectorised else stock)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("{train: 2, eval: 1}", None),
        ("{by: hash, columns: [company], train: 2, eval: 1}", {"by": "group", "columns": ["company"]}),
        (
            "{by: group, columns: [company, trip_miles], train: 2, eval: 1}",
            {"by": "group", "columns": ["company", "trip_miles"]},
        ),
        ("{by: time, columns: [tips], train: 2, eval: 1}", {"by": "time", "columns": ["tips"]}),
        ("{by: column, columns: [company], train: [c0, c1], eval: [c2]}", None),
    ],
)
def test_validation_part_keeps_the_groups_of_the_split_together(
    tmp_path: Path, rows: str, split: str, expected: dict[str, Any] | None
) -> None:
    nodes = compile_nodes(tmp_path, rows, f"data.split={split}")
    transform, trainer = (
        json.loads(json.loads(read_parameter(nodes[node], "custom_config"))["plan"])
        for node in ("Transform", "Trainer")
    )
    assert transform == trainer["features"]
    assert transform["row_key"] == expected


def test_user_code_does_not_receive_a_row_key(tmp_path: Path, rows: str) -> None:
    code = tmp_path / "own.py"
    code.write_text("def run_fn(fn_args):\n    pass\n")
    split = "data.split={by: time, columns: [tips], train: 2, eval: 1}"
    nodes = compile_nodes(tmp_path, rows, split, f"model.run_fn={code}")
    plan = json.loads(json.loads(read_parameter(nodes["Transform"], "custom_config"))["plan"])
    assert plan["row_key"] is None


def test_label_of_a_retrieval_may_be_constant(tmp_path: Path, rows: str) -> None:
    fields = ("data.label=tips", "data.task=retrieval")
    towers = ("model={kind: two_tower, item: [company]}", "evaluation.thresholds={mrr: {min: 0.1}}")
    for assignments, classes in ((("data.label=tips",), True), ((*fields, *towers), False)):
        nodes = compile_nodes(tmp_path, rows, *assignments)
        assert json.loads(read_parameter(nodes["DataGate"], "plan"))["classes"] is classes
