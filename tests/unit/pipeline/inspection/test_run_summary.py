"""Tests for the summary of a run, which is read from evaluations and from a metadata store as TFX writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.evaluator.verdict import Check, SliceMetrics, Verdict
from components.results import task_load
from components.results.task_load import TaskLoad
from pipeline.core.records import RunSummary
from tests.support.runs.evaluations import read_facts, write_evaluation, write_statistics
from tests.support.runs.store_writer import Writer
from tests.support.servers.in_fork_server import in_child


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "metadata.db")


def summarize_run(folder: Path, run: str = "r1") -> RunSummary:
    summary = in_child(folder / "test.log", read_facts, folder / "metadata.db", run)
    assert isinstance(summary, RunSummary)
    return summary


def test_summary_of_a_failed_run_is_empty(writer: Writer, tmp_path: Path):
    writer.execution("r1", "ExampleGen", "FAILED")
    assert summarize_run(tmp_path) == RunSummary()


def test_row_counts_come_from_the_ingested_examples(writer: Writer, tmp_path: Path):
    counts = {"rows_read": 13, "rows_train": 8, "rows_eval": 4}
    joins = [{"path": ["/zones.csv"], "rows": 13, "matched": 9}]
    ingested = writer.artifact("Examples", "/a", split_names='["train", "eval"]', joins=json.dumps(joins), **counts)
    writer.execution("r1", "ExampleGen", outputs=(ingested,))
    transformed = writer.artifact("Examples", "/b", split_names='["train", "eval"]')
    writer.execution("r1", "Transform", outputs=(transformed,))
    summary = summarize_run(tmp_path)
    assert (summary.rows_read, summary.rows) == (13, {"train": 8, "eval": 4})
    assert summary.joins == tuple(joins)


def test_row_counts_come_from_the_statistics_if_examples_lack_them(writer: Writer, tmp_path: Path):
    write_statistics(tmp_path / "statistics", {"train": 8, "eval": 4})
    writer.execution("r1", "ExampleGen", outputs=(writer.artifact("Examples", split_names='["train", "eval"]'),))
    statistics = writer.artifact("ExampleStatistics", str(tmp_path / "statistics"), split_names='["train", "eval"]')
    writer.execution("r1", "StatisticsGen", outputs=(statistics,))
    summary = summarize_run(tmp_path)
    assert (summary.rows_read, summary.rows) == (None, {"train": 8, "eval": 4})


def test_restarts_of_a_cluster_are_summarized(writer: Writer, tmp_path: Path):
    counts = {"steps": 200, "restarts": 1, "repeated": 40, "damaged": 0}
    writer.execution("r1", "Trainer", outputs=(writer.artifact("ModelRun", "/run", **counts),))
    assert summarize_run(tmp_path).training == counts


def test_loads_of_a_cluster_are_summarized_with_a_remark_about_the_largest_ps(writer: Writer, tmp_path: Path):
    sizes = {"ps-0": 900_000_000, "ps-1": 100_000_000}
    loads = tuple(TaskLoad(task, 1, 2.0, 3, 4, size) for task, size in sizes.items())
    properties = {task_load.PROPERTY: task_load.to_json(loads)}
    writer.execution("r1", "Trainer", outputs=(writer.artifact("ModelRun", "/run", **properties),))
    summary = summarize_run(tmp_path)
    assert summary.tasks == loads
    [warning] = summary.describe_data_warnings()
    assert warning.startswith("ps-0 holds 900 MB of variables, each of the other 1 ps 100 MB on average")


def test_tuned_values_are_summarized(writer: Writer, tmp_path: Path):
    best = tmp_path / "best_hyperparameters.txt"
    best.write_text('{"space": [], "values": {"learning_rate": 0.25, "hidden": "[8, 4]"}}')
    writer.execution("r1", "Tuner", outputs=(writer.artifact("HyperParameters", str(tmp_path)),))
    assert summarize_run(tmp_path).tuned == {"learning_rate": 0.25, "hidden": [8, 4]}


WHOLE = SliceMetrics({}, 8, {"binary_accuracy": 0.75}, {"binary_accuracy": 0.0})
HOURS = (
    SliceMetrics({"hour": "1"}, 4, {"binary_accuracy": 1.0}, {"binary_accuracy": 0.0}),
    SliceMetrics({"hour": "2"}, 4, {"binary_accuracy": 0.5}, {"binary_accuracy": 0.0}),
)
CHECK = Check("binary_accuracy", {"hour": "2"}, "at least 0.6", 0.5, 0.5, 4, passed=False, why=None)


def write_verdict(writer: Writer, folder: Path, verdict: Verdict) -> None:
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "verdict.json").write_text(verdict.to_json())
    evaluation = writer.artifact("ModelEvaluation", str(folder / "evaluation"))
    blessing = writer.artifact("ModelBlessing", blessed=int(verdict.blessed))
    writer.execution("r1", "Evaluator", outputs=(evaluation, blessing))


def test_metrics_verdict_and_version_of_a_pushed_model_are_summarized(writer: Writer, tmp_path: Path):
    writer.execution("r1", "Trainer", outputs=(writer.artifact("Model", "/model"),))
    write_verdict(writer, tmp_path, Verdict(True, "the old one is broken", 8, (CHECK,), (WHOLE, *HOURS)))
    pushed = writer.artifact("PushedModel", pushed=1, pushed_destination="/pushed/7", pushed_version="7")
    writer.execution("r1", "Pusher", outputs=(pushed,))
    summary = summarize_run(tmp_path)
    assert (summary.metrics, summary.rows_evaluated, summary.slices) == ({"binary_accuracy": 0.75}, 8, HOURS)
    assert (summary.checks, summary.verdict, summary.forced) == ((CHECK,), "blessed", "the old one is broken")
    assert (summary.model, summary.pushed, summary.pushed_version) == ("/model", "/pushed/7", "7")


def test_model_below_its_threshold_is_not_blessed(writer: Writer, tmp_path: Path):
    write_verdict(writer, tmp_path, Verdict(False, None, 8, (CHECK,), (WHOLE, *HOURS)))
    writer.execution("r1", "Pusher", outputs=(writer.artifact("PushedModel", pushed=0),))
    summary = summarize_run(tmp_path)
    assert (summary.checks, summary.verdict, summary.forced, summary.pushed) == ((CHECK,), "not blessed", None, None)


@pytest.mark.extended
def test_metrics_of_a_stock_evaluator_are_summarized(writer: Writer, tmp_path: Path):
    in_child(tmp_path / "test.log", write_evaluation, tmp_path / "evaluation")
    evaluation = writer.artifact("ModelEvaluation", str(tmp_path / "evaluation"))
    writer.execution("r1", "Evaluator", outputs=(evaluation, writer.artifact("ModelBlessing", blessed=1)))
    summary = summarize_run(tmp_path)
    assert (summary.metrics, summary.rows_evaluated, summary.slices) == ({"binary_accuracy": 0.75}, 8, HOURS)
    assert (summary.checks, summary.verdict) == ((), "blessed")


def test_blessing_found_by_a_resolver_is_not_a_verdict(writer: Writer, tmp_path: Path):
    old = writer.artifact("ModelBlessing", blessed=1)
    writer.execution("r1", "LatestBlessedModel", outputs=(old,), event="INTERNAL_OUTPUT")
    assert summarize_run(tmp_path).verdict == "not evaluated"
