"""Tests for lineage, which leads to the data and to pushed versions, but does not follow models of other runs."""

from __future__ import annotations

import json

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError
from pipeline.inspection import lineage
from pipeline.inspection.lineage import trace
from tests.support.runs.stored_history import History


def test_ancestors_of_a_pushed_version_are_traced(history: History):
    graph = trace(history.store, history.number("pushed 2"))
    nodes = {(execution.run, execution.node) for execution in graph.executions.values()}
    # The first run created the rows. The second run took them from the cache.
    assert nodes == {("r2", "Pusher"), ("r2", "Trainer"), ("r2", "Evaluator"), ("r1", "ExampleGen")}
    assert graph.maker[history.number("rows 1")] == history.executions["r1.ExampleGen"]
    assert history.number("model 1") in graph.artifacts, "the baseline is named"
    assert history.number("model 1") not in graph.maker, "but not followed"
    assert set(graph.code.values()) == {"abc"}
    assert set(graph.configs) == {"r1", "r2"}


def test_descendants_of_the_rows_are_traced(history: History):
    graph = trace(history.store, history.number("rows 1"))
    names = {name for name in history.artifacts if history.number(name) in graph.artifacts}
    assert names == {
        "rows 1",
        *("model 1", "blessing 1", "pushed 1", "model 2", "blessing 2", "pushed 2"),
    }
    readers = {graph.executions[number].node for number in graph.readers[history.number("rows 1")]}
    assert readers == {"Trainer", "Evaluator"}


def test_comparison_with_a_later_model_is_listed_but_not_followed(history: History):
    graph = trace(history.store, history.number("model 2"))
    later = history.executions["r3.Evaluator"]
    assert later in graph.readers[history.number("model 2")]
    assert history.number("blessing 3") not in graph.maker, "what became of the others is not its own"


def test_artifact_is_found_by_version_id_or_uri(history: History):
    store, pushed, model = history.store, history.number("pushed 2"), history.number("model 2")
    assert lineage.find(store, "12") == lineage.find(store, "version:12") == pushed
    assert lineage.find(store, str(model)) == lineage.find(store, f"artifact:{model}") == model
    assert lineage.find(store, history.artifacts["model 2"].uri + "/") == model


@pytest.mark.parametrize("message", ["nothing", "version:99", "run:1", ""])
def test_unknown_artifact_name_is_rejected(history: History, message: str):
    with pytest.raises(InputError, match="expected the number of an artifact"):
        lineage.find(history.store, message)


def test_missing_artifact_is_rejected(history: History):
    with pytest.raises(InputError, match="there is no artifact 999"):
        trace(history.store, 999)


def test_artifact_made_outside_of_runs_has_lineage(history: History):
    store = history.writer.store
    model = history.writer.artifact("Model", "/by hand")
    type_id = store.put_execution_type(proto.ExecutionType(name="by.Hand"))
    event = proto.Event(type=proto.Event.OUTPUT)
    number, [model.id], _ = store.put_execution(proto.Execution(type_id=type_id), [(model, event)], [])
    graph = trace(history.store, model.id)
    assert (graph.executions[number].run, graph.executions[number].type) == ("", "by.Hand")
    assert f"by.Hand, run none (execution {number})" in lineage.to_dot(graph)


def test_graph_is_exported_as_json_dot_and_mermaid(history: History):
    graph = trace(history.store, history.number("model 2"))
    record = json.loads(lineage.to_json(graph))
    assert record["root"] == history.number("model 2")
    edges = {(edge["execution"], edge["artifact"], edge["kind"]) for edge in record["edges"]}
    assert (history.executions["r2.Trainer"], history.number("rows 1"), "input") in edges
    assert (history.executions["r2.Trainer"], history.number("model 2"), "output") in edges
    arrow = f"a{history.number('rows 1')} -> e{history.executions['r2.Trainer']}"
    assert arrow in lineage.to_dot(graph)
    assert arrow.replace(" -> ", ' -->|"examples"| ') in lineage.to_mermaid(graph)


def test_hostile_names_are_escaped(history: History):
    hostile = history.writer.artifact("Model", '/x"] ; style <script>\n\x1b[31m[red]', pushed_version='"\n];')
    history.writer.execution("r4", 'No"de]<b>\n', outputs=[hostile])
    graph = trace(history.store, hostile.id)
    for text in (lineage.to_dot(graph), lineage.to_mermaid(graph)):
        assert "\x1b" not in text
        assert "<script>" not in text
    assert 'label="No\\"de]<b>\\\\n, run r4' in lineage.to_dot(graph)
    assert "No#34;de#93;#60;b#62;" in lineage.to_mermaid(graph)
