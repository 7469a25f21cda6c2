"""Tests for the user's nodes in a compiled pipeline: inputs, dependencies, digests of code, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tfx.proto.orchestration import pipeline_pb2

from components.base.errors import InputError
from pipeline.authoring import own_nodes
from pipeline.orchestration.compiler import compile_pipeline
from tests.support.data.small_config import load_small

pytestmark = pytest.mark.both_lines

MEASURE = {"component": "own_components.Measure", "inputs": {"statistics": "StatisticsGen.statistics"}}
CHECK = {"component": "own_components.check_size", "inputs": {"size": "Measure.size", "text": "Measure.text"}}
MEASURE_AGAIN = {**MEASURE, "id": "M"}
INSPECTOR = {"component": "own_components.Inspector", "inputs": {"rows": "ExampleGen.examples"}}


def compile_nodes(folder: Path, *nodes: dict[str, Any]) -> dict[str, Any]:
    config = load_small(folder, f"nodes: {yaml.safe_dump(list(nodes), default_flow_style=True)}").config
    pipeline = pipeline_pb2.Pipeline.FromString(compile_pipeline(config))
    return {node.pipeline_node.node_info.id: node.pipeline_node for node in pipeline.nodes}


def read_parameters(node: Any) -> dict[str, Any]:
    return {
        name: getattr(value.field_value, value.field_value.WhichOneof("value"))
        for name, value in node.parameters.parameters.items()
    }


def test_nodes_are_connected_in_any_order(tmp_path: Path) -> None:
    check = {**CHECK, "parameters": {"least": 1}, "after": "Evaluator", "before": ["Pusher"]}
    nodes = compile_nodes(tmp_path, check, {**MEASURE, "parameters": {"word": "w"}})
    assert list(nodes["Measure"].upstream_nodes) == ["StatisticsGen"]
    assert list(nodes["check_size"].upstream_nodes) == ["Evaluator", "Measure"]
    assert "check_size" in nodes["Pusher"].upstream_nodes
    values = read_parameters(nodes["check_size"])
    assert values["least"] == 1.0
    assert isinstance(values["least"], float), "a whole number of YAML, and the function takes a float"
    assert read_parameters(nodes["Measure"])["word"] == "w"


def test_class_is_created_with_inputs_and_parameters(tmp_path: Path) -> None:
    nodes = compile_nodes(tmp_path, {**INSPECTOR, "id": "Rows", "parameters": {"limit": 5}})
    assert list(nodes["Rows"].inputs.inputs) == ["examples"]
    assert read_parameters(nodes["Rows"])["limit"] == 5


def test_edit_of_the_module_changes_the_cache_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Use a unique name, because a module is imported only once per process.
    module = tmp_path / f"edited_{tmp_path.name.replace('-', '_')}.py"
    monkeypatch.syspath_prepend(tmp_path)
    source = (
        "from tfx.dsl.component.experimental.decorators import component\n@component\ndef Task(size: int):\n    pass\n"
    )
    node = {"component": f"{module.stem}.Task", "inputs": {"size": "Measure.size"}}
    digests = []
    for text in (source, source, f"{source}# edited\n"):
        module.write_text(text)
        digests.append(read_parameters(compile_nodes(tmp_path, MEASURE, node)["Task"])[own_nodes.CODE])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("node", "messages"),
    [
        ({"component": "own_components.Mesure"}, ["no function 'Mesure'; did you mean 'Measure'?"]),
        ({"component": "no_package.Other"}, ["no module 'no_package'"]),
        ({"component": "own_components.NoComponent"}, ["expected a TFX component, received the class NoComponent"]),
        ({"component": "own_components.GateError"}, ["expected a TFX component, received the class GateError"]),
        ({"component": "own_components.container"}, ["expected an executor in Python, received Templated"]),
        ({**MEASURE, "id": "M", "inputs": {}}, ["nodes.1, M: own_components.Measure requires 'statistics', which is"]),
        (
            {**MEASURE_AGAIN, "inputs": {"statistic": "SchemaGen.schema"}, "parameters": {"statistics": 1, "w": 2}},
            [
                "no input 'statistic'; did you mean 'statistics'?",
                "parameters.statistics: statistics belongs to inputs",
                "no parameter 'w'",
            ],
        ),
        (
            {**MEASURE, "id": "M", "inputs": {"statistics": "SchemaGen.schema"}, "parameters": {"word": 1}},
            [
                "inputs.statistics: expected ExampleStatistics, received Schema, the type of SchemaGen.schema",
                "parameters.word: expected str, received 1",
            ],
        ),
        (
            {**CHECK, "inputs": {"size": "Measure.sise", "text": "Measure.text"}},
            ["inputs.size: Measure has no output 'sise'; did you mean 'size'?"],
        ),
        ({**CHECK, "after": "Tuner"}, ["nodes.1.after: the pipeline of this config has no Tuner"]),
        (
            {"component": "own_components.Inspector", "inputs": {"rows": "LatestBlessedModel.model"}},
            ["own_components.Inspector refuses its arguments: TypeError"],
        ),
        (
            {**INSPECTOR, "parameters": {"limit": 10}},
            ["nodes.1, Inspector: own_components.Inspector refuses its arguments: ValueError: a limit has one digit"],
        ),
        (
            {**MEASURE, "id": "M", "inputs": {"statistics": "LatestBlessedModel.model"}},
            ["expected an optional input, because LatestBlessedModel.model is empty as long as there is no such model"],
        ),
    ],
)
def test_invalid_node_is_rejected(tmp_path: Path, node: dict[str, Any], messages: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        compile_nodes(tmp_path, MEASURE, node)
    for message in messages:
        assert re.search(re.escape(message), str(raised.value)), raised.value
