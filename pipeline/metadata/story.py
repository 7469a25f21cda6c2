"""A run as a whole: what ML Metadata knows of its nodes, and what the run itself has written down beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.metadata import history
from pipeline.metadata.reasons import flat
from pipeline.metadata.store import INPUT, OUTPUT, Execution, Run, Store

_STATES = {"COMPLETE": "done", "CACHED": "cached", "FAILED": "failed", "CANCELED": "interrupted"}
_OF_NODE = ("cpu_seconds", "peak_memory_mb", "rows", "attempts", "log", "upstream")


def of_run(store: Store, logs: Path, run: Run) -> dict[str, Any]:
    """A run as plain JSON values.

    Returns:
      run, pipeline, state, started (seconds since the epoch), seconds, verdict, metrics, pushed_version, error, logs,
      and `nodes`: by name, in their order, each with state, seconds, cpu_seconds, peak_memory_mb, rows, attempts, log,
      upstream (None where only our own runs know them), execution, inputs, outputs (each with key, id, type, uri),
      parameters and `tries`, the lines of attempts.jsonl.
    """
    own = history.record(logs, run.name) or {}
    row = history.row(store, logs, run)
    executions = {each.node: each for each in store.executions(run.name)}
    tries = _tries(logs / run.name / "attempts.jsonl") if own else []
    details = _details(store, list(executions.values()))
    nodes = {}
    for name in dict.fromkeys((*own.get("nodes", {}), *executions)):
        known = own.get("nodes", {}).get(name, {})
        execution = executions.get(name)
        nodes[name] = {
            "state": known.get("state") or _state(execution),
            "seconds": known.get("seconds") or (execution.updated - execution.started if execution else 0.0),
            **{key: known.get(key) for key in _OF_NODE},
            "execution": execution.id if execution else None,
            **(details[execution.id] if execution else {"inputs": [], "outputs": [], "parameters": {}}),
            "tries": [each for each in tries if each.get("node") == name],
        }
    return {
        "run": run.name,
        "pipeline": run.pipeline,
        "state": row.state,
        "started": row.started,
        "seconds": row.seconds,
        "verdict": row.verdict,
        "metrics": row.metrics,
        "pushed_version": row.version,
        "error": (own.get("error") or {}).get("headline"),
        "logs": str(logs / run.name) if own else None,
        "nodes": nodes,
    }


def of_record(logs: Path, own: Mapping[str, Any]) -> dict[str, Any]:
    """A run as it tells of itself, without what ML Metadata knows.

    Args:
      logs: the folder with a folder per run.
      own: its `run.json`.

    Returns:
      The same as `of_run`, without verdict, metrics, version, executions, artifacts, parameters and tries.
    """
    return {
        **{key: own[key] for key in ("run", "pipeline", "state", "started")},
        "seconds": own["updated"] - own["started"],
        "error": (own.get("error") or {}).get("headline"),
        "logs": str(logs / own["run"]),
        "nodes": {
            name: {
                **{key: node.get(key) for key in ("state", "seconds", *_OF_NODE)},
                "inputs": [],
                "outputs": [],
            }
            for name, node in own["nodes"].items()
        },
    }


def upstream(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Node → those it waits for, as the run has written it down; of another's, who made what it read."""
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
    """Execution → what it read and made, and its parameters, taken apart."""
    numbers = [each.id for each in executions]
    events = store.events(numbers)
    artifacts = store.artifacts_by_id(event.artifact for event in events)
    details: dict[int, dict[str, Any]] = {
        number: {
            "inputs": [],
            "outputs": [],
            "parameters": {key: text for name, value in given.items() for key, text in flat(value, name)},
        }
        for number, given in store.parameters(numbers).items()
    }
    for event in events:
        if event.kind in (INPUT, OUTPUT):
            artifact = artifacts[event.artifact]
            told = {"key": event.key, "id": artifact.id, "type": artifact.type, "uri": artifact.uri}
            details[event.execution]["inputs" if event.kind == INPUT else "outputs"].append(told)
    return details


def _tries(file: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []
