"""Gathers, at the end of a run, what came out of it: rows, metrics, verdict and where the model went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.serving.found import FILE, Found
from components.tuner.values import plain
from pipeline.metadata import data, evaluation
from pipeline.metadata.facts import BLESSED, NOT_BLESSED, NOT_EVALUATED, Facts
from pipeline.metadata.store import Artifact, Store


def facts(store: Store, run: str) -> Facts:
    """What the finished nodes of a run have made known; all else stays empty."""
    examples = _newest(store, run, "Examples", first=True)
    measured = _newest(store, run, "ModelEvaluation")
    slices, verdict = evaluation.read(measured.uri) if measured else ((), None)
    whole = next((each for each in slices if not each.slice), None)
    pushed = _newest(store, run, "PushedModel")
    model = _newest(store, run, "Model")
    return Facts(
        rows_read=_count(examples, "rows_read"),
        rows=_rows(store, run, examples),
        rows_quarantined=_count(examples, "rows_quarantined") or 0,
        rows_left_out=_count(examples, "rows_left_out") or 0,
        quarantine=_text(examples, "quarantine"),
        column_types=json.loads(_text(examples, "column_types") or "{}"),
        training=_training(_newest(store, run, "ModelRun")),
        tuned=_tuned(_newest(store, run, "HyperParameters")),
        metrics=whole.metrics if whole else {},
        baseline=whole.baseline if whole else {},
        intervals=whole.intervals if whole else {},
        rows_evaluated=whole.rows if whole else None,
        slices=tuple(each for each in slices if each.slice),
        checks=verdict.checks if verdict else (),
        verdict=_verdict(_newest(store, run, "ModelBlessing")),
        forced=verdict.forced if verdict else None,
        serving=_serving(_newest(store, run, "InfraBlessing")),
        pushed=_text(pushed, "pushed_destination") if _count(pushed, "pushed") else None,
        pushed_version=_text(pushed, "pushed_version") if _count(pushed, "pushed") else None,
        model=model.uri if model else None,
    )


def _newest(store: Store, run: str, type_name: str, first: bool = False) -> Artifact | None:
    """The last artifact of a type; `first` for the examples as ingested, before Transform made its own."""
    found = store.artifacts(run, type_name)
    return (found[0] if first else found[-1]) if found else None


def _rows(store: Store, run: str, examples: Artifact | None) -> dict[str, int]:
    """Rows per split, as the ingest counted them; a stock ExampleGen counts none, so then as the statistics say."""
    if examples is None:
        return {}
    counted = {split: _count(examples, f"rows_{split}") for split in examples.splits}
    rows = {split: count for split, count in counted.items() if count is not None}
    statistics = data.statistics(store, run)
    if rows or statistics is None:
        return rows
    return {split: _examples_counted(statistics, split) for split in statistics.splits}


def _examples_counted(statistics: Artifact, split: str) -> int:
    content = (Path(statistics.uri) / f"Split-{split}" / "FeatureStats.pb").read_bytes()
    datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(content).datasets
    # With slices there is one data set per slice; the whole comes first.
    return int(datasets[0].num_examples) if datasets else 0


def _training(model_run: Artifact | None) -> dict[str, int]:
    counts = {name: _count(model_run, name) for name in ("steps", "restarts", "repeated", "damaged")}
    return {name: count for name, count in counts.items() if count is not None}


def _tuned(best: Artifact | None) -> dict[str, Any]:
    file = Path(best.uri) / "best_hyperparameters.txt" if best else None
    return plain(json.loads(file.read_text())["values"]) if file and file.exists() else {}


def _verdict(blessing: Artifact | None) -> str:
    blessed = _count(blessing, "blessed")
    if blessed is None:
        return NOT_EVALUATED
    return BLESSED if blessed else NOT_BLESSED


def _serving(blessing: Artifact | None) -> Found | None:
    """What the serving check found; a stock InfraValidator writes down nothing but its verdict."""
    if blessing is None:
        return None
    file = Path(blessing.uri) / FILE
    if file.exists():
        return Found.from_json(file.read_text())
    return Found(server="", passed=bool(_count(blessing, "blessed")))


def _count(artifact: Artifact | None, key: str) -> int | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else int(value)


def _text(artifact: Artifact | None, key: str) -> str | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else str(value)
