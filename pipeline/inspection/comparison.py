"""The comparison of two runs: configs, schemas, rows, column statistics, metrics and models."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.errors import InputError
from components.evaluator.verdict import SliceMetrics
from pipeline.core import run_record
from pipeline.core.metadata.store import Run, Store
from pipeline.core.records import RunSummary
from pipeline.core.text import flatten_json
from pipeline.inspection import column_statistics
from pipeline.inspection.run_summary import summarize


def compare(store: Store, logs: Path, before: Run, now: Run) -> dict[str, Any]:
    """Compares two runs.

    Args:
      store: with both runs.
      logs: the folder with a folder per run; the metrics of a run's record remain when the artifacts are removed.
      before: the first run.
      now: the second run.

    Returns:
      JSON values:
      `before` and `now`: the runs' ids.
      `config`: field → [before, now], of fields that differ; None if a run has no recorded config.
      `schema`: column → [before, now], each its line in the schema, or None; None if a run has no schema (any more).
      `rows`: split → [before, now].
      `columns`: changed column → its distance (see `column_statistics.ColumnChange`), None if only one run has it;
        None for all if a run has no statistics (any more).
      `metrics`: a list of {slice, metric, before, now}.
      `model`: bytes (of the exported model), p50_ms and p99_ms (of the serving check) → [before, now].
      `verdict` and `version`: [before, now].
    """
    summaries = _summary(store, logs, before.name), _summary(store, logs, now.name)
    verdicts, versions = [each.verdict for each in summaries], [each.pushed_version for each in summaries]
    return {
        "before": before.name,
        "now": now.name,
        "config": _configs(store, before.name, now.name),
        "schema": _schemas(*(_schema(store, run.name) for run in (before, now))),
        "rows": _both(*(each.rows for each in summaries)),
        "columns": _columns(store, before.name, now.name),
        "metrics": _metrics(*summaries),
        "model": _differing(*(_model(each) for each in summaries)),
        "verdict": verdicts,
        "version": versions,
    }


def _configs(store: Store, before: str, now: str) -> dict[str, list[Any]] | None:
    configs = [store.config(run) for run in (before, now)]
    if None in configs:
        return None
    return _differing(*(dict(flatten_json(config)) for config in configs))


def _summary(store: Store, logs: Path, run: str) -> RunSummary:
    summary = summarize(store, run)
    record = run_record.record(logs, run) or {}
    if summary.metrics or not record.get("metrics"):
        return summary
    return replace(summary, metrics=record["metrics"], slices=tuple(SliceMetrics(**each) for each in record["slices"]))


def _schemas(before: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, list[Any]] | None:
    return None if before is None or now is None else _differing(before, now)


def _schema(store: Store, run: str) -> dict[str, str] | None:
    """Returns column → its definition in the schema, on one line; None if the schema was removed."""
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
    """Returns the values of a named domain."""
    return "".join(f" values: {', '.join(each.value)}" for each in schema.string_domain if name and each.name == name)


def _columns(store: Store, before: str, now: str) -> dict[str, float | None] | None:
    """Compares the first split that both runs have: the training split."""
    splits = [
        artifact.splits if (artifact := column_statistics.statistics(store, run)) else [] for run in (before, now)
    ]
    split = next((each for each in splits[0] if each in splits[1]), None)
    if split is None:
        return None
    try:
        changes = column_statistics.changes(*(column_statistics.columns(store, run, split) for run in (before, now)))
    except InputError:
        return None
    return {each.name: each.distance for each in changes if each.changed}


def _metrics(before: RunSummary, now: RunSummary) -> list[dict[str, Any]]:
    by_slice = [
        {(): summary.metrics} | {tuple(sorted(one.slice.items())): one.metrics for one in summary.slices}
        for summary in (before, now)
    ]
    return [
        {"slice": dict(key), "metric": name, **dict(zip(("before", "now"), values, strict=True))}
        for key in dict.fromkeys((*by_slice[0], *by_slice[1]))
        for name in dict.fromkeys((*by_slice[0].get(key, {}), *by_slice[1].get(key, {})))
        for values in [[metrics.get(key, {}).get(name) for metrics in by_slice]]
    ]


def _model(summary: RunSummary) -> dict[str, float]:
    size = {"bytes": float(_bytes(Path(summary.model)))} if summary.model else {}
    latencies = asdict(summary.serving) if summary.serving else {}
    return size | {name: latencies[name] for name in ("p50_ms", "p99_ms") if latencies.get(name) is not None}


def _bytes(folder: Path) -> int:
    """Returns the size of all files of an exported model."""
    return sum(file.stat().st_size for file in (folder / "Format-Serving").rglob("*") if file.is_file())


def _both(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [before.get(name), now.get(name)] for name in dict.fromkeys((*before, *now))}


def _differing(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in _both(before, now).items() if values[0] != values[1]}
