"""Lineage goes up to the data and down to what was pushed, past the cache, and not along to other runs' models."""

from __future__ import annotations

import json

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from stored_history import History

from components.base.errors import InputError
from pipeline.inspection import lineage
from pipeline.inspection.lineage import trace


def test_up_from_a_pushed_version(history: History):
    found = trace(history.store, history.number("pushed 2"))
    nodes = {(each.run, each.node) for each in found.executions.values()}
    # The rows were made in the first run, and came from the cache in the second.
    assert nodes == {("r2", "Pusher"), ("r2", "Trainer"), ("r2", "Evaluator"), ("r1", "ExampleGen")}
    assert found.maker[history.number("rows 1")] == history.executions["r1.ExampleGen"]
    assert history.number("model 1") in found.artifacts, "the baseline is named"
    assert history.number("model 1") not in found.maker, "but not followed"
    assert set(found.code.values()) == {"abc"}
    assert set(found.configs) == {"r1", "r2"}


def test_down_from_the_rows(history: History):
    found = trace(history.store, history.number("rows 1"))
    named = {name for name in history.artifacts if history.number(name) in found.artifacts}
    assert named == {
        "rows 1",
        *("model 1", "blessing 1", "pushed 1", "model 2", "blessing 2", "pushed 2"),
    }
    readers = {found.executions[number].node for number in found.readers[history.number("rows 1")]}
    assert readers == {"Trainer", "Evaluator"}


def test_model_that_others_were_compared_with(history: History):
    found = trace(history.store, history.number("model 2"))
    later = history.executions["r3.Evaluator"]
    assert later in found.readers[history.number("model 2")]
    assert history.number("blessing 3") not in found.maker, "what became of the others is not its own"


def test_artifact_is_found_by_version_id_or_uri(history: History):
    store, pushed, model = history.store, history.number("pushed 2"), history.number("model 2")
    assert lineage.find(store, "12") == lineage.find(store, "version:12") == pushed
    assert lineage.find(store, str(model)) == lineage.find(store, f"artifact:{model}") == model
    assert lineage.find(store, history.artifacts["model 2"].uri + "/") == model


@pytest.mark.parametrize("message", ["nothing", "version:99", "run:1", ""])
def test_unknown_artifact_name_is_rejected(history: History, message: str):
    with pytest.raises(InputError, match="expected the number of an artifact"):
        lineage.find(history.store, message)


def test_missing_artifact(history: History):
    with pytest.raises(InputError, match="there is no artifact 999"):
        trace(history.store, 999)


def test_artifact_made_outside_of_runs_has_lineage(history: History):
    store = history.writer.store
    made = history.writer.artifact("Model", "/by hand")
    kind = store.put_execution_type(proto.ExecutionType(name="by.Hand"))
    event = proto.Event(type=proto.Event.OUTPUT)
    number, [made.id], _ = store.put_execution(proto.Execution(type_id=kind), [(made, event)], [])
    found = trace(history.store, made.id)
    assert (found.executions[number].run, found.executions[number].type) == ("", "by.Hand")
    assert f"by.Hand, run none (execution {number})" in lineage.to_dot(found)


def test_graph_in_other_languages(history: History):
    found = trace(history.store, history.number("model 2"))
    record = json.loads(lineage.to_json(found))
    assert record["root"] == history.number("model 2")
    edges = {(each["execution"], each["artifact"], each["kind"]) for each in record["edges"]}
    assert (history.executions["r2.Trainer"], history.number("rows 1"), "input") in edges
    assert (history.executions["r2.Trainer"], history.number("model 2"), "output") in edges
    arrow = f"a{history.number('rows 1')} -> e{history.executions['r2.Trainer']}"
    assert arrow in lineage.to_dot(found)
    assert arrow.replace(" -> ", ' -->|"examples"| ') in lineage.to_mermaid(found)


def test_names_that_want_to_be_more(history: History):
    evil = history.writer.artifact("Model", '/x"] ; style <script>\n\x1b[31m[red]', pushed_version='"\n];')
    history.writer.execution("r4", 'No"de]<b>\n', outputs=[evil])
    found = trace(history.store, evil.id)
    for text in (lineage.to_dot(found), lineage.to_mermaid(found)):
        assert "\x1b" not in text
        assert "<script>" not in text
    assert 'label="No\\"de]<b>\\\\n, run r4' in lineage.to_dot(found)
    assert "No#34;de#93;#60;b#62;" in lineage.to_mermaid(found)
