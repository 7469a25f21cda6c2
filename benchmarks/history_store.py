"""Create a metadata store with a long history, as runs of the taxi example would write it.

python -m benchmarks.history_store FILE [--runs 1000]

A run has ten nodes and twenty artifacts. ML Metadata creates the tables, but the rows are inserted with SQL, because ML
Metadata's library takes minutes for them.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto

NODES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ExampleGen": ((), ("Examples",)),
    "StatisticsGen": (("Examples",), ("ExampleStatistics",)),
    "SchemaGen": (("ExampleStatistics",), ("Schema",)),
    "ExampleValidator": (("ExampleStatistics", "Schema"), ("ExampleAnomalies", "JsonValue")),
    "Transform": (("Examples", "Schema"), ("TransformGraph", "TransformCache", "Examples2", "Schema2", "Statistics2")),
    "Trainer": (("Examples2", "TransformGraph", "Schema"), ("Model", "ModelRun")),
    "Tuner": (("Examples2", "TransformGraph"), ("HyperParameters", "TunerResults")),
    "Evaluator": (("Examples", "Model"), ("ModelEvaluation", "ModelBlessing")),
    "InfraValidator": (("Model", "Examples"), ("InfraBlessing",)),
    "Pusher": (("Model", "ModelBlessing", "InfraBlessing"), ("PushedModel", "Version", "Manifest")),
}
"""Node → types of its inputs, types of its outputs."""
_STARTED = 1_760_000_000_000
_HOUR = 3_600_000
_PER_CONTEXT = ("pipeline", "pipeline_run", "node")
_EVENTS = {"input": 3, "output": 4}


class _Tables:
    """Collects rows and inserts them table by table.

    Args:
      connection: Connection to the store.
      numbers: Table → greatest ID in use.
    """

    def __init__(self, connection: sqlite3.Connection, numbers: dict[str, int]) -> None:
        self._connection = connection
        self._rows: dict[str, list[Sequence[Any]]] = {}
        self._numbers = numbers

    def add(self, table: str, *values: Any) -> int:
        """Add a row with a new ID, and return the ID."""
        number = self._numbers[table] = self._numbers.get(table, 0) + 1
        self._rows.setdefault(table, []).append((number, *values))
        return number

    def link(self, table: str, *values: Any) -> None:
        """Add a row to a table without IDs."""
        self._rows.setdefault(table, []).append(values)

    def write(self) -> None:
        """Insert all rows."""
        columns = {
            "Type": "id, name, type_kind",
            "Context": "id, type_id, name, create_time_since_epoch, last_update_time_since_epoch",
            "ContextProperty": "context_id, name, is_custom_property, string_value",
            "ParentContext": "context_id, parent_context_id",
            "Execution": "id, type_id, last_known_state, create_time_since_epoch, last_update_time_since_epoch",
            "ExecutionProperty": "execution_id, name, is_custom_property, string_value",
            "Artifact": "id, type_id, uri, state, create_time_since_epoch, last_update_time_since_epoch",
            "ArtifactProperty": "artifact_id, name, is_custom_property, int_value, string_value",
            "Event": "id, artifact_id, execution_id, type, milliseconds_since_epoch",
            "EventPath": "event_id, is_index_step, step_key",
            "Association": "id, context_id, execution_id",
            "Attribution": "id, context_id, artifact_id",
        }
        for table, rows in self._rows.items():
            places = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT INTO {table} ({columns[table]}) VALUES ({places})", rows)  # noqa: S608
        self._connection.commit()


def write(path: Path, runs: int) -> None:
    """Write the store with one run per hour; each model is compared with the model of the previous run."""
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    mlmd.MetadataStore(config)
    with sqlite3.connect(path) as connection:
        [[last_type_id]] = connection.execute("SELECT MAX(id) FROM Type")
        tables = _Tables(connection, {"Type": last_type_id})
        types = {name: tables.add("Type", name, 2) for name in _PER_CONTEXT}
        types |= {node: tables.add("Type", node, 0) for node in NODES}
        types |= {kind: tables.add("Type", kind, 1) for _, outputs in NODES.values() for kind in outputs}
        pipeline = tables.add("Context", types["pipeline"], "taxi", _STARTED, _STARTED)
        nodes = {node: tables.add("Context", types["node"], f"taxi.{node}", _STARTED, _STARTED) for node in NODES}
        baseline = None
        for number in range(runs):
            baseline = _run(tables, types, pipeline, nodes, number, baseline)
        tables.write()
    connection.close()


def _run(
    tables: _Tables, types: dict[str, int], pipeline: int, nodes: dict[str, int], number: int, baseline: int | None
) -> int:
    """Add a run; return the ID of its model."""
    now = _STARTED + number * _HOUR
    run = tables.add("Context", types["pipeline_run"], f"run-{number:06}", now, now)
    tables.link("ParentContext", run, pipeline)
    tables.link("ContextProperty", run, "config", 1, json.dumps({"training": {"steps": 1000 + number}}))
    artifacts: dict[str, int] = {}
    for node, (reads, makes) in NODES.items():
        now += 60_000
        execution = tables.add("Execution", types[node], 3, now, now + 50_000)
        plan = json.dumps({"code": "0123456789abcdef", "plan": {"steps": 1000 + number}})
        tables.link("ExecutionProperty", execution, "custom_config", 1, plan)
        for context in (pipeline, run, nodes[node]):
            tables.add("Association", context, execution)
        inputs = [(kind, artifacts[kind]) for kind in reads]
        if node == "Evaluator" and baseline is not None:
            inputs.append(("baseline_model", baseline))
        for key, artifact in inputs:
            event = tables.add("Event", artifact, execution, _EVENTS["input"], now)
            tables.link("EventPath", event, 0, key)
        for kind in makes:
            uri = f"/data/artifacts/{node}/{kind}/{execution}"
            artifact = artifacts[kind] = tables.add("Artifact", types[kind], uri, 2, now, now)
            for name, whole, text in _properties(kind, number):
                tables.link("ArtifactProperty", artifact, name, 1, whole, text)
            for context in (pipeline, run, nodes[node]):
                tables.add("Attribution", context, artifact)
            event = tables.add("Event", artifact, execution, _EVENTS["output"], now)
            tables.link("EventPath", event, 0, kind)
    return artifacts["Model"]


def _properties(kind: str, number: int) -> list[tuple[str, int | None, str | None]]:
    known: dict[str, list[tuple[str, int | None, str | None]]] = {
        "Examples": [("span", number, None), ("split_names", None, '["train", "eval"]')],
        "ModelBlessing": [("blessed", int(number % 3 > 0), None)],
        "PushedModel": [("pushed", 1, None), ("pushed_version", None, str(number + 1))],
    }
    return [*known.get(kind, []), ("tfx_version", None, "1.16.0")]


def main() -> None:
    """Create a store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    write(options.file, options.runs)


if __name__ == "__main__":
    main()
