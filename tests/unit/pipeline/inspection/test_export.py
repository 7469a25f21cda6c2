"""Tests for the export of a store as JSON lines and as OpenLineage events."""

from __future__ import annotations

import json
import uuid
from collections import Counter

import pytest

from pipeline.inspection import export
from tests.support.runs.stored_history import History


def test_artifacts_runs_and_executions_are_exported_once(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export, "_PAGE", 2)
    lines = [json.loads(json.dumps(line)) for line in export.lines(history.store)]
    assert Counter(line["kind"] for line in lines) == {"artifact": len(history.artifacts), "run": 3, "execution": 11}
    known: set[int] = set()
    for line in lines:
        if line["kind"] == "artifact":
            assert line["id"] not in known
            known.add(line["id"])
        elif line["kind"] == "execution":
            assert {event["artifact"] for event in line["events"]} <= known
    trainer = next(line for line in lines if line.get("id") == history.executions["r2.Trainer"] and line.get("node"))
    assert (trainer["run"], trainer["state"]) == ("r2", "COMPLETE")
    assert trainer["events"] == [
        {"artifact": history.number("rows 1"), "key": "examples", "event": "input"},
        {"artifact": history.number("model 2"), "key": "out0", "event": "output"},
    ]
    assert json.loads(next(line for line in lines if line.get("name") == "r2")["config"])["training"]
    assert list(export.lines(history.store, "other")) == []


def test_finished_executions_become_openlineage_events(history: History):
    history.writer.execution("r4", "Trainer", "FAILED", inputs={"examples": history.artifacts["rows 3"]})
    history.writer.execution("r4", "Pusher", "RUNNING")
    events = list(export.openlineage(history.store))
    assert Counter(event["eventType"] for event in events) == {"COMPLETE": 11, "FAIL": 1}
    failed = events[-1]
    # The specification requires these fields in a RunEvent.
    assert {"eventTime", "producer", "schemaURL", "run", "job"} <= set(failed)
    assert uuid.UUID(failed["run"]["runId"])
    assert failed["job"] == {"namespace": "toy", "name": "toy.Trainer"}
    assert [data_set["name"] for data_set in failed["inputs"]] == [history.artifacts["rows 3"].uri]
    assert (failed["inputs"][0]["namespace"], failed["outputs"]) == ("file", [])
    assert len({event["run"]["runId"] for event in events}) == len(events)
    parents = {
        event["run"]["facets"]["tfx"]["run"]: event["run"]["facets"]["parent"]["run"]["runId"] for event in events
    }
    assert len(set(parents.values())) == 4
    assert events == list(export.openlineage(history.store)), "sent twice, they are known as the same"


def test_bucket_is_the_namespace_of_a_data_set(history: History):
    rows = history.writer.artifact("Examples", "gs://bucket/a/b")
    history.writer.execution("r4", "ExampleGen", outputs=[rows])
    [output] = list(export.openlineage(history.store))[-1]["outputs"]
    assert (output["namespace"], output["name"]) == ("gs://bucket", "a/b")
