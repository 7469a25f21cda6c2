"""Tests for the reader of metadata stores, with stores that ML Metadata has written."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import MachineError
from pipeline.core.metadata.connection import cancel, list_unfinished
from pipeline.core.metadata.store import Store
from tests.support.runs.store_writer import Writer


@pytest.fixture
def store(writer: Writer, tmp_path: Path) -> Store:
    return Store(tmp_path / "metadata.db")


def test_runs_are_sorted_newest_first(writer: Writer, store: Store):
    for run in ("r1", "r3", "r2"):
        writer.execution(run, "A")
    assert [run.name for run in store.runs("toy")] == ["r2", "r3", "r1"]
    assert store.runs("other") == []


def test_executions_have_a_node_and_a_state(writer: Writer, store: Store):
    first = writer.execution("r1", "A", "FAILED")
    second = writer.execution("r1", "A")
    writer.execution("r2", "A")
    assert [
        (execution.id, execution.node, execution.state, execution.succeeded) for execution in store.executions("r1")
    ] == [
        (first, "A", "FAILED", False),
        (second, "A", "COMPLETE", True),
    ]
    newest = store.execution("r1", "A")
    assert newest is not None
    assert newest.id == second
    assert store.execution("r1", "B") is None
    assert store.executions("no such run") == []


def test_outputs_are_returned_by_key_with_plain_properties(writer: Writer, store: Store):
    examples = writer.artifact("Examples", "/e", split_names='["train", "eval"]', rows_train=8)
    model = writer.artifact("Model", "/m")
    writer.execution("r1", "A", outputs=(examples, model))
    execution = store.execution("r1", "A")
    assert execution is not None
    outputs = store.outputs(execution)
    [artifact] = outputs["out0"]
    assert (artifact.type, artifact.uri, artifact.state, artifact.properties["rows_train"]) == (
        "Examples",
        "/e",
        "LIVE",
        8,
    )
    assert artifact.splits == ["train", "eval"]
    assert outputs["out1"][0].splits == []


def test_artifacts_of_a_run_are_outputs_of_its_successful_nodes(writer: Writer, store: Store):
    writer.execution("r1", "Finder", outputs=(writer.artifact("Model", "/old"),), event="INTERNAL_OUTPUT")
    writer.execution("r1", "Broken", "FAILED", outputs=(writer.artifact("Model", "/half"),))
    writer.execution("r1", "Trainer", outputs=(writer.artifact("Model", "/new"),))
    assert [artifact.uri for artifact in store.artifacts("r1", "Model")] == ["/new"]


def test_missing_store_is_an_error_and_not_created(tmp_path: Path):
    with pytest.raises(MachineError, match=r"none\.db cannot be opened"):
        Store(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_store_without_references_is_closed(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    connect, connections = sqlite3.connect, []

    def connect_and_record(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*arguments, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", connect_and_record)
    store = Store(tmp_path / "metadata.db")
    assert store.runs() == []
    del store
    (tmp_path / "no store").write_text("text")
    with pytest.raises(MachineError, match="file is not a database"):
        Store(tmp_path / "no store")
    gc.collect()
    assert len(connections) == 2
    for connection in connections:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_schema_of_another_release_is_rejected(writer: Writer, tmp_path: Path):
    with sqlite3.connect(tmp_path / "metadata.db") as connection:
        connection.execute("UPDATE MLMDEnv SET schema_version = 11")
    connection.close()
    with pytest.raises(MachineError, match="expected schema version 10, received 11"):
        Store(tmp_path / "metadata.db")


def test_unfinished_executions_of_an_ended_process_are_canceled(writer: Writer, store: Store, tmp_path: Path):
    pending = writer.artifact("Model", "/half", state="PENDING")
    unfinished = writer.execution("r1", "Trainer", "RUNNING", outputs=(pending,), event="PENDING_OUTPUT")
    writer.execution("r1", "Source", "COMPLETE")
    writer.execution("r2", "Trainer", "RUNNING")

    canceled = list_unfinished(tmp_path / "metadata.db", "r1")
    cancel(tmp_path / "metadata.db", canceled)

    assert [(execution.id, execution.node) for execution in canceled] == [(unfinished, "Trainer")]
    assert [execution.state for execution in store.executions("r1")] == ["CANCELED", "COMPLETE"]
    assert [execution.state for execution in store.executions("r2")] == ["RUNNING"]
    [artifact] = writer.store.get_artifacts()
    assert artifact.state == proto.Artifact.ABANDONED
    assert list_unfinished(tmp_path / "metadata.db", "r1") == []
