"""Tests for the comparison of two runs, including runs whose artifacts were deleted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.evaluator.verdict import SliceMetrics, Verdict
from pipeline.inspection.comparison import compare
from tests.support.runs.stored_history import History


def schema(*columns: str) -> str:
    return "".join(f'feature {{ name: "{name}" type: FLOAT }}\n' for name in columns)


def make_slices(value: float) -> tuple[SliceMetrics, ...]:
    return SliceMetrics({}, 9, {"auc": value}, {}), SliceMetrics({"city": "Paris"}, 3, {"auc": value / 2}, {})


def compare_runs(history: History, before: str = "r1", now: str = "r3") -> dict[str, Any]:
    runs = {run.name: run for run in history.store.runs()}
    result = compare(history.store, history.logs, runs[before], runs[now])
    assert json.loads(json.dumps(result)) == result, "plain JSON values"
    return result


@pytest.fixture
def whole(history: History, tmp_path: Path) -> History:
    """Add schemas, statistics, verdicts and models to the first and the third run of the history."""
    for run, columns, score in (("r1", ("age", "city"), 0.5), ("r3", ("age", "hours"), 0.75)):
        folder = tmp_path / "artifacts" / run
        (folder / "schema").mkdir(parents=True)
        (folder / "schema" / "schema.pbtxt").write_text(schema(*columns))
        stats = statistics_pb2.DatasetFeatureStatisticsList()
        stats.datasets.add(num_examples=4).features.add(type=statistics_pb2.FeatureNameStatistics.FLOAT).name = columns[
            1
        ]
        (folder / "statistics" / "Split-train").mkdir(parents=True)
        (folder / "statistics" / "Split-train" / "FeatureStats.pb").write_bytes(stats.SerializeToString())
        (folder / "evaluation").mkdir()
        verdict = Verdict(blessed=True, forced=None, rows=9, checks=(), slices=make_slices(score))
        (folder / "evaluation" / "verdict.json").write_text(verdict.to_json())
        history.writer.execution(run, "SchemaGen", outputs=[history.writer.artifact("Schema", str(folder / "schema"))])
        statistics = history.writer.artifact("ExampleStatistics", str(folder / "statistics"), split_names='["train"]')
        history.writer.execution(run, "StatisticsGen", outputs=[statistics])
        evaluation = history.writer.artifact("ModelEvaluation", str(folder / "evaluation"))
        history.writer.execution(run, "Evaluator", outputs=[evaluation])
        exported = Path(history.artifacts[f"model {run[1]}"].uri) / "Format-Serving"
        exported.mkdir()
        (exported / "saved_model.pb").write_bytes(b"x" * int(score * 100))
    return history


def test_comparison_contains_only_differences(whole: History):
    result = compare_runs(whole)
    assert result["config"] == {"training.learning_rate": ["0.1", "0.2"]}
    assert result["schema"] == {
        "city": ['name: "city" type: FLOAT', None],
        "hours": [None, 'name: "hours" type: FLOAT'],
    }
    assert result["rows"] == {"train": [8, 9]}
    assert result["columns"] == {"city": None, "hours": None}
    assert result["metrics"] == [
        {"slice": {}, "metric": "auc", "before": 0.5, "now": 0.75},
        {"slice": {"city": "Paris"}, "metric": "auc", "before": 0.25, "now": 0.375},
    ]
    assert result["model"] == {"bytes": [50, 75]}
    assert (result["verdict"], result["version"]) == (["blessed", "not blessed"], ["11", None])


def test_run_does_not_differ_from_itself(whole: History):
    result = compare_runs(whole, "r1", "r1")
    assert (result["config"], result["schema"], result["columns"], result["model"]) == ({}, {}, {}, {})
    assert {(metric["before"], metric["now"]) for metric in result["metrics"]} == {(0.5, 0.5), (0.25, 0.25)}


def test_deleted_artifacts_are_reported_as_missing(whole: History, tmp_path: Path):
    whole.write_record("r1", state="done", metrics={"auc": 0.5}, slices=[])
    shutil.rmtree(tmp_path / "artifacts")
    result = compare_runs(whole)
    assert (result["schema"], result["columns"]) == (None, None)
    assert result["metrics"] == [{"slice": {}, "metric": "auc", "before": 0.5, "now": None}]
    assert result["config"] == {"training.learning_rate": ["0.1", "0.2"]}
