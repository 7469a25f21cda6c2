"""Tests for the section `nodes` without TFX: IDs, references to nodes and outputs, cycles, and resources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import Config
from pipeline.authoring.config.examples_format import examples_format
from tests.support.data.small_config import load_small


def load_config(folder: Path, *nodes: dict[str, Any], **sections: Any) -> Config:
    lines = [f"{name}: {yaml.safe_dump(value, default_flow_style=True)}" for name, value in sections.items()]
    return load_small(folder, f"nodes: {yaml.safe_dump(list(nodes), default_flow_style=True)}", *lines).config


def test_node_has_the_name_of_its_component_or_its_id(tmp_path: Path) -> None:
    first_check = {"component": "mine.Check", "inputs": {"model": "Trainer.model"}, "before": "Pusher"}
    second_check = {
        "component": "mine.Check",
        "id": "Second",
        "after": ["Check", "Evaluator"],
        "inputs": {"x": "Check.out"},
    }
    loaded = load_config(tmp_path, first_check, second_check)
    assert [node.name for node in loaded.nodes] == ["Check", "Second"]
    assert loaded.nodes[0].before == ("Pusher",)
    assert loaded.nodes[1].upstream == ("Check", "Check", "Evaluator")
    assert loaded.node_names()[-2:] == ("Check", "Second")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([{"component": "mine.py:Check"}], "nodes.0.component: expected an import path such as my_package.MyComponent"),
        ([{"component": "mine.Trainer"}], "expected an id that is not taken, received 'Trainer'"),
        ([{"component": "mine.data_gate"}], "received 'data_gate', and there is 'DataGate'; set another id"),
        ([{"component": "mine.small"}], "received 'small', and there is 'small'"),
        ([{"component": "mine.Due"}], "received 'Due', and there is 'due'"),
        ([{"component": "mine.Check"}, {"component": "other.check"}], "received 'check', and there is 'Check'"),
        ([{"component": "mine.Prüfung"}], "expected an id of at most 40 ASCII letters, digits and _"),
        ([{"component": "mine.Check", "after": "Trianer"}], "no node 'Trianer'; did you mean 'Trainer'?"),
        ([{"component": "mine.Check", "before": ["Push"]}], "no node 'Push'; did you mean 'Pusher'?"),
        ([{"component": "mine.Check", "after": "LatestBlessedModel"}], "expected a node that runs, received Latest"),
        ([{"component": "mine.Check", "inputs": {"a": "Trainer"}}], "nodes.0.inputs.a: expected a text that matches"),
        ([{"component": "mine.Check", "inputs": {"a": "Trainr.model"}}], "no node 'Trainr'; did you mean 'Trainer'?"),
        ([{"component": "mine.Check", "inputs": {"a": "Trainer.modle"}}], "Trainer has no output 'modle'; did you"),
        ([{"component": "mine.Check", "afer": "Trainer"}], "nodes.0.afer: unknown key; did you mean 'after'?"),
        ([{"component": "mine.Check", "after": "Check"}], "form a cycle: Check → Check"),
        (
            [{"component": "mine.A", "inputs": {"a": "B.out"}}, {"component": "mine.B", "inputs": {"b": "A.out"}}],
            "form a cycle",
        ),
        ([{"component": "mine.A", "inputs": {"a": "Evaluator.blessing"}, "before": "Transform"}], "form a cycle"),
    ],
)
def test_invalid_nodes_are_rejected_without_tfx(tmp_path: Path, nodes: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        load_config(tmp_path, *nodes)
    assert raised.value.headline.startswith(str(tmp_path / "small.yaml:5"))


def test_resources_must_belong_to_existing_nodes(tmp_path: Path) -> None:
    kubeflow = {"image": "an/image:1", "claim": "c", "resources": {"Check": {"cpu": 1}, "every": {"cpu": 2}}}
    vertex = {"project": "p", "region": "europe-west4", "image": "an/image:1", "root": "gs://b"}
    node = {"component": "mine.Check"}
    load_config(tmp_path, node, kubeflow=kubeflow, vertex={**vertex, "resources": {"Check": {"cpu": 1}}})
    with pytest.raises(InputError, match=r"kubeflow.resources.Check: the pipeline has no node 'Check'"):
        load_config(tmp_path, kubeflow=kubeflow)
    with pytest.raises(InputError, match=r"vertex.resources.BaseModel: expected a node with a container, received"):
        load_config(tmp_path, vertex={**vertex, "resources": {"BaseModel": {"cpu": 1}}})


def test_node_that_reads_examples_gets_tfrecords_by_default(tmp_path: Path) -> None:
    reader = {"component": "mine.Check", "inputs": {"examples": "ExampleGen.examples"}}
    assert examples_format(load_config(tmp_path, {"component": "mine.Check"})) == "parquet"
    assert examples_format(load_config(tmp_path, reader)) == "tfrecord"
    chosen = load_small(tmp_path, f"nodes: {yaml.safe_dump([reader], default_flow_style=True)}")
    data = chosen.config.data.model_copy(update={"examples_format": "parquet"})
    assert examples_format(chosen.config.model_copy(update={"data": data})) == "parquet"
