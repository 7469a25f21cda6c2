"""Reads the history of runs, as a list or node by node, from ML Metadata and the records that runs write."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.results import version_manifest
from pipeline.core import run_record
from pipeline.core.metadata.store import INPUT, OUTPUT, Execution, Run, Store, Value
from pipeline.core.records import BLESSED, NOT_BLESSED
from pipeline.core.text import flatten_json

_PAGE = 200
"""Number of runs that are read at a time."""
_RECORD_KEYS = {"pipeline", "state", "started", "updated"}
"""Keys of `run.json` that are present in every state of a run."""
_SUCCEEDED = ("COMPLETE", "CACHED")
_STATES = {"COMPLETE": "done", "CACHED": "cached", "FAILED": "failed", "CANCELED": "interrupted"}
_NODE_RECORD_KEYS = ("cpu_seconds", "peak_memory_mb", "rows", "attempts", "log", "jobs", "upstream")


@dataclass(frozen=True)
class RunListEntry:
    """A run in the list of runs.

    Attributes:
      run: ID of the run.
      pipeline: Name of the pipeline.
      state: `done`, `rejected`, `failed`, `interrupted`, `running` or `died`.
      started: Start of the run, as Unix time in seconds.
      seconds: Duration of the run; of an active run, the duration so far.
      spans: Spans of the data. Empty if the input is not divided into spans.
      verdict: `blessed` or `not blessed`. None if no model was evaluated.
      metrics: Metrics of the whole eval split.
      version: Number of the version that the run pushed. None if it did not push a version.
    """

    run: str
    pipeline: str
    state: str
    started: float
    seconds: float
    spans: tuple[int, ...] = ()
    verdict: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    version: str | None = None


def list_runs(
    store: Store,
    logs: Path,
    pipeline: str | None = None,
    newest: int | None = None,
    states: Collection[str] = (),
    since: float = 0.0,
) -> Iterator[RunListEntry]:
    """Yield the runs, the newest first. The store is read page by page while the caller iterates.

    Args:
      store: The store that holds the runs.
      logs: Folder with one subfolder per run. The records there have details that ML Metadata lacks.
      pipeline: Name of the pipeline whose runs are listed. If None, all runs.
      newest: Maximum number of runs. If None, the number is not limited.
      states: States of the runs to list. If empty, runs in all states are listed.
      since: Unix time in seconds. Runs that started earlier are skipped.
    """
    count, last, page_size = 0, None, min(newest or _PAGE, _PAGE)
    while newest is None or count < newest:
        page = store.runs(pipeline, page_size, last)
        for entry in _make_entries(store, logs, [run for run in page if run.started >= since]):
            if (not states or entry.state in states) and (newest is None or count < newest):
                count += 1
                yield entry
        if len(page) < page_size or page[-1].started < since:
            return
        last = page[-1]


def make_list_entry(store: Store, logs: Path, run: Run) -> RunListEntry:
    """Return the entry of a run in the list of runs."""
    return _make_entries(store, logs, [run])[0]


def list_runs_outside_store(
    logs: Path, pipeline: str | None, in_store: Container[str], since: float
) -> list[RunListEntry]:
    """Return the runs that have a record but are not in the store.

    These runs have just started, or they ended before their first node.

    Args:
      logs: Folder with one subfolder per run.
      pipeline: Name of the pipeline whose runs are listed. If None, all runs.
      in_store: IDs of the runs in the store.
      since: Unix time in seconds. Runs that started earlier are skipped.
    """
    entries = []
    for path in logs.glob("*/run.json"):
        name = path.parent.name
        record = None if name in in_store else run_record.read_record(logs, name)
        if (
            record
            and record.keys() >= _RECORD_KEYS
            and record["started"] >= since
            and pipeline in (None, record["pipeline"])
        ):
            seconds = record["updated"] - record["started"]
            entries.append(RunListEntry(name, record["pipeline"], record["state"], record["started"], seconds))
    return entries


def derive_state(executions: Collection[Execution]) -> str:
    """Derive the state of a run without a record from its executions: running, done, failed or interrupted."""
    states = {execution.state for execution in executions}
    if states & {"NEW", "RUNNING"}:
        return "running"
    if states <= set(_SUCCEEDED):
        return "done"
    return "failed" if "FAILED" in states else "interrupted"


def _make_entries(store: Store, logs: Path, runs: list[Run]) -> list[RunListEntry]:
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for execution in store.executions(*executions):
        executions[execution.run].append(execution)
    properties = _read_output_properties(store, executions)
    return [
        _make_entry(run, executions[run.name], properties[run.name], run_record.read_record(logs, run.name) or {})
        for run in runs
    ]


def _make_entry(
    run: Run, executions: list[Execution], properties: dict[str, dict[str, Value]], record: dict[str, Any]
) -> RunListEntry:
    blessed = properties.get("ModelBlessing", {}).get("blessed")
    pushed = properties.get("PushedModel", {})
    ended = max((execution.updated for execution in executions), default=run.started)
    return RunListEntry(
        run=run.name,
        pipeline=run.pipeline,
        state=record.get("state") or derive_state(executions),
        started=record.get("started") or run.started,
        seconds=record["updated"] - record["started"] if "updated" in record else ended - run.started,
        spans=_parse_spans(properties.get("Examples", {})),
        verdict=None if blessed is None else BLESSED if blessed else NOT_BLESSED,
        metrics=record.get("metrics") or {},
        version=str(pushed["pushed_version"]) if pushed.get("pushed") and "pushed_version" in pushed else None,
    )


def _read_output_properties(
    store: Store, executions: dict[str, list[Execution]]
) -> dict[str, dict[str, dict[str, Value]]]:
    """Return the properties of one output per artifact type, by run.

    The types are Examples, ModelBlessing and PushedModel. For Examples, the first output counts, because it holds the
    ingested rows, whereas later outputs hold transformed rows. For the other types, the last output counts.
    """
    runs = {
        execution.id: execution.run
        for executions_of_run in executions.values()
        for execution in executions_of_run
        if execution.succeeded
    }
    outputs = store.list_typed_outputs(runs, ("Examples", "ModelBlessing", "PushedModel"))
    artifacts = store.artifacts_by_id(artifact for _, artifact in outputs)
    properties: dict[str, dict[str, dict[str, Value]]] = {run: {} for run in executions}
    for execution_id, artifact_id in outputs:
        artifact = artifacts[artifact_id]
        properties_of_run = properties[runs[execution_id]]
        if artifact.type != "Examples" or "Examples" not in properties_of_run:
            properties_of_run[artifact.type] = artifact.properties
    return properties


def _parse_spans(examples: dict[str, Value]) -> tuple[int, ...]:
    if "span" not in examples:
        return ()
    return version_manifest.spans(str(examples.get("input_fingerprint", "")), int(examples["span"]))


def describe_run(store: Store, logs: Path, run: Run) -> dict[str, Any]:
    """Describe a run as plain JSON values.

    Args:
      store: The store that holds the run.
      logs: Folder with one subfolder per run.
      run: The run.

    Returns:
      A dictionary with the keys `run`, `pipeline`, `state`, `started` (Unix time in seconds), `seconds`, `verdict`,
      `metrics`, `pushed_version`, `error`, `logs` and `nodes`.

      `nodes` maps the names of the nodes, in the recorded order, to dictionaries with the keys `state`, `seconds`,
      `cpu_seconds`, `peak_memory_mb`, `rows`, `attempts`, `log`, `jobs`, `upstream` (None if the run did not write a
      record), `execution`, `inputs` and `outputs` (lists with `key`, `id`, `type` and `uri`), `parameters`, and `tries`
      (the node's lines in attempts.jsonl).
    """
    record = run_record.read_record(logs, run.name) or {}
    entry = make_list_entry(store, logs, run)
    executions = {execution.node: execution for execution in store.executions(run.name)}
    attempts = _read_attempts(logs / run.name / "attempts.jsonl") if record else []
    details = _read_details(store, list(executions.values()))
    nodes = {}
    for name in dict.fromkeys((*record.get("nodes", {}), *executions)):
        node_record = record.get("nodes", {}).get(name, {})
        execution = executions.get(name)
        nodes[name] = {
            "state": node_record.get("state") or _describe_state(execution),
            "seconds": node_record.get("seconds") or (execution.updated - execution.started if execution else 0.0),
            **{key: node_record.get(key) for key in _NODE_RECORD_KEYS},
            "execution": execution.id if execution else None,
            **(details[execution.id] if execution else {"inputs": [], "outputs": [], "parameters": {}}),
            "tries": [attempt for attempt in attempts if attempt.get("node") == name],
        }
    return {
        "run": run.name,
        "pipeline": run.pipeline,
        "state": entry.state,
        "started": entry.started,
        "seconds": entry.seconds,
        "verdict": entry.verdict,
        "metrics": entry.metrics,
        "pushed_version": entry.version,
        "error": (record.get("error") or {}).get("headline"),
        "logs": str(logs / run.name) if record else None,
        "nodes": nodes,
    }


def describe_record(logs: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run from its record alone, without ML Metadata.

    Args:
      logs: Folder with one subfolder per run.
      record: Content of the run's `run.json`.

    Returns:
      A dictionary as returned by `describe_run`, but without the verdict, metrics and version of the run, and without
      the executions, artifacts, parameters and tries of its nodes.
    """
    return {
        **{key: record[key] for key in ("run", "pipeline", "state", "started")},
        "seconds": record["updated"] - record["started"],
        "error": (record.get("error") or {}).get("headline"),
        "logs": str(logs / record["run"]),
        "nodes": {
            name: {
                **{key: node.get(key) for key in ("state", "seconds", *_NODE_RECORD_KEYS)},
                "inputs": [],
                "outputs": [],
            }
            for name, node in record["nodes"].items()
        },
    }


def find_upstream(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that each node depends on.

    They come from the run's record or, without a record, from the inputs: a node depends on the nodes that produced
    them.

    Args:
      nodes: Descriptions of the nodes by name, as in the result of `describe_run`.
    """
    producers = {artifact["id"]: name for name, node in nodes.items() for artifact in node["outputs"]}
    return {
        name: tuple(node["upstream"])
        if node.get("upstream") is not None
        else tuple(
            dict.fromkeys(producers[artifact["id"]] for artifact in node["inputs"] if artifact["id"] in producers)
        )
        for name, node in nodes.items()
    }


def _describe_state(execution: Execution | None) -> str:
    return _STATES.get(execution.state, execution.state.lower()) if execution else "not run"


def _read_details(store: Store, executions: list[Execution]) -> dict[int, dict[str, Any]]:
    """Return the inputs, the outputs and the flattened parameters of executions, by execution ID."""
    ids = [execution.id for execution in executions]
    events = store.events(ids)
    artifacts = store.artifacts_by_id(event.artifact for event in events)
    details: dict[int, dict[str, Any]] = {
        execution_id: {
            "inputs": [],
            "outputs": [],
            "parameters": {key: text for name, value in parameters.items() for key, text in flatten_json(value, name)},
        }
        for execution_id, parameters in store.parameters(ids).items()
    }
    for event in events:
        if event.kind in (INPUT, OUTPUT):
            artifact = artifacts[event.artifact]
            description = {"key": event.key, "id": artifact.id, "type": artifact.type, "uri": artifact.uri}
            details[event.execution]["inputs" if event.kind == INPUT else "outputs"].append(description)
    return details


def _read_attempts(file: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []
