"""The history of runs: the list of runs, and each run node by node, from ML Metadata and the runs' own records."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components import version_manifest
from pipeline.core import run_record
from pipeline.core.metadata.store import INPUT, OUTPUT, Execution, Run, Store, Value
from pipeline.core.records import BLESSED, NOT_BLESSED
from pipeline.core.text import flatten_json

_PAGE = 200
_RECORD_KEYS = {"pipeline", "state", "started", "updated"}
"""Keys that `run.json` has in every state."""
_SUCCEEDED = ("COMPLETE", "CACHED")
_STATES = {"COMPLETE": "done", "CACHED": "cached", "FAILED": "failed", "CANCELED": "interrupted"}
_RECORDED_OF_NODE = ("cpu_seconds", "peak_memory_mb", "rows", "attempts", "log", "jobs", "upstream")


@dataclass(frozen=True)
class RunListEntry:
    """A run in the list of runs.

    Attributes:
      run: its id.
      pipeline: the pipeline's name.
      state: done, rejected, failed, interrupted, running, or died.
      started: seconds since the epoch.
      seconds: its duration; of an active run, until now.
      spans: of its data; empty where the input has none.
      verdict: blessed or not blessed; None where no model was evaluated.
      metrics: of the whole eval split.
      version: the version that it pushed.
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
    """Yields the runs, newest first, while it reads them page by page.

    Args:
      store: with the runs.
      logs: the folder with a folder per run, whose records have more than ML Metadata.
      pipeline: only its runs; None: of all pipelines.
      newest: maximum number of runs; None: no maximum.
      states: only runs in these states; all, if empty.
      since: only runs that started then or later, in seconds since the epoch.
    """
    count, last, page_size = 0, None, min(newest or _PAGE, _PAGE)
    while newest is None or count < newest:
        page = store.runs(pipeline, page_size, last)
        for entry in _entries(store, logs, [run for run in page if run.started >= since]):
            if (not states or entry.state in states) and (newest is None or count < newest):
                count += 1
                yield entry
        if len(page) < page_size or page[-1].started < since:
            return
        last = page[-1]


def list_entry(store: Store, logs: Path, run: Run) -> RunListEntry:
    """Returns one run as it is in the list."""
    return _entries(store, logs, [run])[0]


def runs_outside_store(logs: Path, pipeline: str | None, in_store: Container[str], since: float) -> list[RunListEntry]:
    """Returns runs with a record that are not in the store: they have just started, or ended before their first node.

    Args:
      logs: the folder with a folder per run.
      pipeline: only its runs; None: of all pipelines.
      in_store: the ids of the runs in the store.
      since: only runs that started then or later, in seconds since the epoch.
    """
    entries = []
    for path in logs.glob("*/run.json"):
        name = path.parent.name
        record = None if name in in_store else run_record.record(logs, name)
        if (
            record
            and record.keys() >= _RECORD_KEYS
            and record["started"] >= since
            and pipeline in (None, record["pipeline"])
        ):
            seconds = record["updated"] - record["started"]
            entries.append(RunListEntry(name, record["pipeline"], record["state"], record["started"], seconds))
    return entries


def state_of(executions: Collection[Execution]) -> str:
    """Returns the state of a run from its executions alone: running, done, failed or interrupted."""
    states = {each.state for each in executions}
    if states & {"NEW", "RUNNING"}:
        return "running"
    if states <= set(_SUCCEEDED):
        return "done"
    return "failed" if "FAILED" in states else "interrupted"


def _entries(store: Store, logs: Path, runs: list[Run]) -> list[RunListEntry]:
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for each in store.executions(*executions):
        executions[each.run].append(each)
    properties = _output_properties(store, executions)
    return [
        _entry(run, executions[run.name], properties[run.name], run_record.record(logs, run.name) or {}) for run in runs
    ]


def _entry(
    run: Run, executions: list[Execution], properties: dict[str, dict[str, Value]], record: dict[str, Any]
) -> RunListEntry:
    blessed = properties.get("ModelBlessing", {}).get("blessed")
    pushed = properties.get("PushedModel", {})
    ended = max((each.updated for each in executions), default=run.started)
    return RunListEntry(
        run=run.name,
        pipeline=run.pipeline,
        state=record.get("state") or state_of(executions),
        started=record.get("started") or run.started,
        seconds=record["updated"] - record["started"] if "updated" in record else ended - run.started,
        spans=_spans(properties.get("Examples", {})),
        verdict=None if blessed is None else BLESSED if blessed else NOT_BLESSED,
        metrics=record.get("metrics") or {},
        version=str(pushed["pushed_version"]) if pushed.get("pushed") and "pushed_version" in pushed else None,
    )


def _output_properties(store: Store, executions: dict[str, list[Execution]]) -> dict[str, dict[str, dict[str, Value]]]:
    """Returns run → type → the properties of one output: of the first Examples, of the last of each other type."""
    run_of = {each.id: each.run for of_run in executions.values() for each in of_run if each.succeeded}
    outputs = store.made(run_of, ("Examples", "ModelBlessing", "PushedModel"))
    artifacts = store.artifacts_by_id(artifact for _, artifact in outputs)
    properties: dict[str, dict[str, dict[str, Value]]] = {run: {} for run in executions}
    for execution, number in outputs:
        artifact = artifacts[number]
        if artifact.type != "Examples" or "Examples" not in properties[run_of[execution]]:
            properties[run_of[execution]][artifact.type] = artifact.properties
    return properties


def _spans(examples: dict[str, Value]) -> tuple[int, ...]:
    if "span" not in examples:
        return ()
    return version_manifest.spans(str(examples.get("input_fingerprint", "")), int(examples["span"]))


def describe_run(store: Store, logs: Path, run: Run) -> dict[str, Any]:
    """Describes a run as plain JSON values.

    Args:
      store: with the run.
      logs: the folder with a folder per run.
      run: the run.

    Returns:
      run, pipeline, state, started (seconds since the epoch), seconds, verdict, metrics, pushed_version, error, logs,
      monitoring (the findings of the node Monitor), and `nodes`: by name, in their order, each with state, seconds,
      cpu_seconds, peak_memory_mb, rows, attempts, log, jobs, upstream (None where the run has no record of its own),
      execution, inputs, outputs (each with key, id, type, uri), parameters and `tries`, the lines of attempts.jsonl.
    """
    record = run_record.record(logs, run.name) or {}
    entry = list_entry(store, logs, run)
    executions = {each.node: each for each in store.executions(run.name)}
    attempts = _read_attempts(logs / run.name / "attempts.jsonl") if record else []
    details = _details(store, list(executions.values()))
    nodes = {}
    for name in dict.fromkeys((*record.get("nodes", {}), *executions)):
        recorded = record.get("nodes", {}).get(name, {})
        execution = executions.get(name)
        nodes[name] = {
            "state": recorded.get("state") or _state(execution),
            "seconds": recorded.get("seconds") or (execution.updated - execution.started if execution else 0.0),
            **{key: recorded.get(key) for key in _RECORDED_OF_NODE},
            "execution": execution.id if execution else None,
            **(details[execution.id] if execution else {"inputs": [], "outputs": [], "parameters": {}}),
            "tries": [each for each in attempts if each.get("node") == name],
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
    """Describes a run from its own record alone, without ML Metadata.

    Args:
      logs: the folder with a folder per run.
      record: the content of its `run.json`.

    Returns:
      As `describe_run`, without verdict, metrics, version, executions, artifacts, parameters and tries.
    """
    return {
        **{key: record[key] for key in ("run", "pipeline", "state", "started")},
        "seconds": record["updated"] - record["started"],
        "error": (record.get("error") or {}).get("headline"),
        "logs": str(logs / record["run"]),
        "nodes": {
            name: {
                **{key: node.get(key) for key in ("state", "seconds", *_RECORDED_OF_NODE)},
                "inputs": [],
                "outputs": [],
            }
            for name, node in record["nodes"].items()
        },
    }


def upstream(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Returns node → the nodes that it depends on: as recorded, or else the makers of its inputs.

    Args:
      nodes: name → description, as in `describe_run`.
    """
    makers = {artifact["id"]: name for name, node in nodes.items() for artifact in node["outputs"]}
    return {
        name: tuple(node["upstream"])
        if node.get("upstream") is not None
        else tuple(dict.fromkeys(makers[one["id"]] for one in node["inputs"] if one["id"] in makers))
        for name, node in nodes.items()
    }


def _state(execution: Execution | None) -> str:
    return _STATES.get(execution.state, execution.state.lower()) if execution else "not run"


def _details(store: Store, executions: list[Execution]) -> dict[int, dict[str, Any]]:
    """Returns execution → its inputs, outputs, and flat parameters."""
    numbers = [each.id for each in executions]
    events = store.events(numbers)
    artifacts = store.artifacts_by_id(event.artifact for event in events)
    details: dict[int, dict[str, Any]] = {
        number: {
            "inputs": [],
            "outputs": [],
            "parameters": {key: text for name, value in parameters.items() for key, text in flatten_json(value, name)},
        }
        for number, parameters in store.parameters(numbers).items()
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
