"""Two runs side by side: their configs, schemas, rows, metrics and models."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.errors import InputError
from components.evaluator.verdict import Measured
from pipeline.metadata import data, history
from pipeline.metadata.facts import Facts
from pipeline.metadata.gather import facts
from pipeline.metadata.reasons import flat
from pipeline.metadata.store import Run, Store


def compare(store: Store, logs: Path, before: Run, now: Run) -> dict[str, Any]:
    """What is not the same, as plain JSON values.

    Args:
      store: with both runs.
      logs: the folder in which our own runs write down how they ended; metrics outlive the model's artifacts there.
      before: one of them.
      now: the other.

    Returns:
      `config`: field → [before, now], of fields that differ; None where one of both has written no config down.
      `schema`: column → [before, now], each its lines in the schema, or None; None where one is not there (any more).
      `rows`: split → [before, now].
      `columns`: column → its distance (see `data.ColumnChange`), of those that have changed, or None where only one has
        it; None for all, where the statistics of one run are not there (any more).
      `metrics`: a list of {slice, metric, before, now}.
      `model`: what → [before, now]: bytes of the exported model; p50_ms and p99_ms, as the serving check measured them.
      `verdict` and `version`: [before, now].
    """
    known = _known(store, logs, before.name), _known(store, logs, now.name)
    verdicts, versions = [each.verdict for each in known], [each.pushed_version for each in known]
    return {
        "before": before.name,
        "now": now.name,
        "config": _configs(store, before.name, now.name),
        "schema": _schemas(*(_schema(store, run.name) for run in (before, now))),
        "rows": _both(*(each.rows for each in known)),
        "columns": _columns(store, before.name, now.name),
        "metrics": _metrics(*known),
        "model": _differing(*(_model(each) for each in known)),
        "verdict": verdicts,
        "version": versions,
    }


def _configs(store: Store, before: str, now: str) -> dict[str, list[Any]] | None:
    configs = [store.config(run) for run in (before, now)]
    if None in configs:
        return None
    return _differing(*(dict(flat(config)) for config in configs))


def _known(store: Store, logs: Path, run: str) -> Facts:
    found = facts(store, run)
    own = history.record(logs, run) or {}
    if found.metrics or not own.get("metrics"):
        return found
    return replace(found, metrics=own["metrics"], slices=tuple(Measured(**each) for each in own["slices"]))


def _schemas(before: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, list[Any]] | None:
    return None if before is None or now is None else _differing(before, now)


def _schema(store: Store, run: str) -> dict[str, str] | None:
    """Column → what the schema says of it."""
    for artifact in store.artifacts(run, "Schema"):
        file = Path(artifact.uri) / "schema.pbtxt"
        if file.exists():
            schema = text_format.Parse(file.read_text(encoding="utf-8"), schema_pb2.Schema())
            return {
                each.name: text_format.MessageToString(each, as_one_line=True) + _domain(schema, each.domain)
                for each in schema.feature
            }
    return None


def _domain(schema: schema_pb2.Schema, name: str) -> str:
    """The values of a column whose domain is named in the schema."""
    return "".join(f" values: {', '.join(each.value)}" for each in schema.string_domain if name and each.name == name)


def _columns(store: Store, before: str, now: str) -> dict[str, float | None] | None:
    """Of the first split that both have, which is that for training."""
    splits = [found.splits if (found := data.statistics(store, run)) else [] for run in (before, now)]
    split = next((each for each in splits[0] if each in splits[1]), None)
    if split is None:
        return None
    try:
        changes = data.changes(*(data.columns(store, run, split) for run in (before, now)))
    except InputError:
        return None
    return {each.name: each.distance for each in changes if each.changed}


def _metrics(before: Facts, now: Facts) -> list[dict[str, Any]]:
    sides = [
        {(): known.metrics} | {tuple(sorted(one.slice.items())): one.metrics for one in known.slices}
        for known in (before, now)
    ]
    return [
        {"slice": dict(where), "metric": name, **dict(zip(("before", "now"), values, strict=True))}
        for where in dict.fromkeys((*sides[0], *sides[1]))
        for name in dict.fromkeys((*sides[0].get(where, {}), *sides[1].get(where, {})))
        for values in [[side.get(where, {}).get(name) for side in sides]]
    ]


def _model(known: Facts) -> dict[str, float]:
    told = {"bytes": float(_bytes(Path(known.model)))} if known.model else {}
    latencies = asdict(known.serving) if known.serving else {}
    return told | {name: latencies[name] for name in ("p50_ms", "p99_ms") if latencies.get(name) is not None}


def _bytes(folder: Path) -> int:
    """Of all files of an exported model."""
    return sum(file.stat().st_size for file in (folder / "Format-Serving").rglob("*") if file.is_file())


def _both(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [before.get(name), now.get(name)] for name in dict.fromkeys((*before, *now))}


def _differing(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in _both(before, now).items() if values[0] != values[1]}
