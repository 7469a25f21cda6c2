"""Compares two runs: their configs, schemas, rows, column statistics, metrics and models."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base.errors import InputError
from components.data import file_io
from components.evaluator.verdict import SliceMetrics
from pipeline.core import run_record
from pipeline.core.metadata.store import Run, Store
from pipeline.core.records import RunSummary
from pipeline.core.text import flatten_json
from pipeline.inspection import column_statistics
from pipeline.inspection.run_summary import summarize


def compare(store: Store, logs: Path, before: Run, now: Run) -> dict[str, Any]:
    """Compare two runs.

    Args:
      store: The store that holds both runs.
      logs: Folder with one subfolder per run. The metrics come from a run's record there if its artifacts were deleted.
      before: The first run.
      now: The second run.

    Returns:
      A dictionary of JSON values. In pairs [before, now], a value is None if it is missing in that run.
      `before` and `now`: IDs of the runs.
      `config`: Pairs for the fields that differ. None if the config of a run was not recorded.
      `schema`: Pairs for the columns that differ, each value a line of the schema. None if the schema of a run is
        missing or was deleted.
      `rows`: Pairs of the number of rows per split.
      `columns`: Distances of the columns that changed (see `column_statistics.ColumnChange`); a distance is None if
        only one run has the column. None if the statistics of a run are missing or were deleted.
      `metrics`: List of objects with the keys `slice`, `metric`, `before` and `now`.
      `model`: Pairs that differ for `bytes` (size of the exported model), `p50_ms` and `p99_ms` (latency in the serving
        check).
      `verdict` and `version`: One pair each.
    """
    summaries = read_summary(store, logs, before.name), read_summary(store, logs, now.name)
    return {
        "before": before.name,
        "now": now.name,
        "config": compare_configs(store, before.name, now.name),
        "schema": _compare_schemas(store, before.name, now.name),
        "rows": _pair(*(summary.rows for summary in summaries)),
        "columns": _compare_columns(store, before.name, now.name),
        "metrics": _compare_metrics(*summaries),
        "model": _pair_differing(*(_measure_model(summary) for summary in summaries)),
        "verdict": [summary.verdict for summary in summaries],
        "version": [summary.pushed_version for summary in summaries],
    }


def compare_configs(store: Store, before: str, now: str) -> dict[str, list[Any]] | None:
    """Return pairs [before, now] of the fields that differ. None if the config of a run was not recorded."""
    configs = [store.config(run) for run in (before, now)]
    if None in configs:
        return None
    return _pair_differing(*(dict(flatten_json(config)) for config in configs))


def read_summary(store: Store, logs: Path, run: str) -> RunSummary:
    """Return the summary of a run, with the metrics of the run's record if the artifacts were deleted."""
    summary = summarize(store, run)
    record = run_record.read_record(logs, run) or {}
    if summary.metrics or not record.get("metrics"):
        return summary
    slices = tuple(SliceMetrics(**fields) for fields in record["slices"])
    return replace(summary, metrics=record["metrics"], slices=slices)


def _compare_schemas(store: Store, before: str, now: str) -> dict[str, list[Any]] | None:
    schema_before, schema_now = _read_schema(store, before), _read_schema(store, now)
    return None if schema_before is None or schema_now is None else _pair_differing(schema_before, schema_now)


def _read_schema(store: Store, run: str) -> dict[str, str] | None:
    """Return one-line definitions of the schema's columns by name. None if the schema is missing or was deleted."""
    for artifact in store.artifacts(run, "Schema"):
        content = file_io.read(file_io.join(artifact.uri, "schema.pbtxt"))
        if content is not None:
            schema = text_format.Parse(content.decode(), schema_pb2.Schema())
            return {
                feature.name: text_format.MessageToString(feature, as_one_line=True)
                + _format_domain(schema, feature.domain)
                for feature in schema.feature
            }
    return None


def _format_domain(schema: schema_pb2.Schema, name: str) -> str:
    """Return the values of a domain that a column refers to by name. Empty if `name` is empty."""
    return "".join(
        f" values: {', '.join(domain.value)}" for domain in schema.string_domain if name and domain.name == name
    )


def _compare_columns(store: Store, before: str, now: str) -> dict[str, float | None] | None:
    """Compare the columns of the first split that both runs have, which is the training split."""
    splits = [
        artifact.splits if (artifact := column_statistics.statistics(store, run)) else [] for run in (before, now)
    ]
    split = next((name for name in splits[0] if name in splits[1]), None)
    if split is None:
        return None
    try:
        changes = column_statistics.changes(*(column_statistics.columns(store, run, split) for run in (before, now)))
    except InputError:
        return None
    return {change.name: change.distance for change in changes if change.changed}


def _compare_metrics(before: RunSummary, now: RunSummary) -> list[dict[str, Any]]:
    # The empty key stands for the whole eval split.
    by_slice = [
        {(): summary.metrics} | {tuple(sorted(row.slice.items())): row.metrics for row in summary.slices}
        for summary in (before, now)
    ]
    return [
        {"slice": dict(key), "metric": name, **dict(zip(("before", "now"), values, strict=True))}
        for key in dict.fromkeys((*by_slice[0], *by_slice[1]))
        for name in dict.fromkeys((*by_slice[0].get(key, {}), *by_slice[1].get(key, {})))
        for values in [[metrics.get(key, {}).get(name) for metrics in by_slice]]
    ]


def _measure_model(summary: RunSummary) -> dict[str, float]:
    """Return the size of a run's exported model in bytes, and its latency in the serving check in milliseconds."""
    size = {"bytes": float(_measure_size(summary.model))} if summary.model else {}
    latencies = asdict(summary.serving) if summary.serving else {}
    return size | {name: latencies[name] for name in ("p50_ms", "p99_ms") if latencies.get(name) is not None}


def _measure_size(folder: str) -> int:
    """Return the total size of an exported model's files in bytes."""
    files = file_io.list_files(file_io.join(folder, "Format-Serving"))
    return sum(measured[0] for measured in file_io.stats(files) if measured is not None)


def _pair(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [before.get(name), now.get(name)] for name in dict.fromkeys((*before, *now))}


def _pair_differing(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in _pair(before, now).items() if values[0] != values[1]}
