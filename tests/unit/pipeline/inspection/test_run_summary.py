"""The facts of a run, from evaluations that TFMA wrote and a store laid out as TFX does it."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluations import read_facts, write_evaluation, write_statistics
from in_fork_server import in_child
from store_writer import Writer

from components.evaluator.verdict import Check, SliceMetrics, Verdict
from pipeline.core.records import RunSummary


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "metadata.db")


def facts(folder: Path, run: str = "r1") -> RunSummary:
    found = in_child(folder / "test.log", read_facts, folder / "metadata.db", run)
    assert isinstance(found, RunSummary)
    return found


def test_run_of_which_nothing_is_known_has_empty_facts(writer: Writer, tmp_path: Path):
    writer.execution("r1", "ExampleGen", "FAILED")
    assert facts(tmp_path) == RunSummary()


def test_rows_are_what_the_ingest_counted(writer: Writer, tmp_path: Path):
    counts = {"rows_read": 13, "rows_train": 8, "rows_eval": 4}
    ingested = writer.artifact("Examples", "/a", split_names='["train", "eval"]', **counts)
    writer.execution("r1", "ExampleGen", outputs=(ingested,))
    transformed = writer.artifact("Examples", "/b", split_names='["train", "eval"]')
    writer.execution("r1", "Transform", outputs=(transformed,))
    found = facts(tmp_path)
    assert (found.rows_read, found.rows) == (13, {"train": 8, "eval": 4})


def test_uncounted_rows_are_taken_from_the_statistics(writer: Writer, tmp_path: Path):
    write_statistics(tmp_path / "statistics", {"train": 8, "eval": 4})
    writer.execution("r1", "ExampleGen", outputs=(writer.artifact("Examples", split_names='["train", "eval"]'),))
    statistics = writer.artifact("ExampleStatistics", str(tmp_path / "statistics"), split_names='["train", "eval"]')
    writer.execution("r1", "StatisticsGen", outputs=(statistics,))
    found = facts(tmp_path)
    assert (found.rows_read, found.rows) == (None, {"train": 8, "eval": 4})


def test_restarts_of_a_cluster_are_summarized(writer: Writer, tmp_path: Path):
    counts = {"steps": 200, "restarts": 1, "repeated": 40, "damaged": 0}
    writer.execution("r1", "Trainer", outputs=(writer.artifact("ModelRun", "/run", **counts),))
    assert facts(tmp_path).training == counts


def test_tuned_values_are_summarized(writer: Writer, tmp_path: Path):
    best = tmp_path / "best_hyperparameters.txt"
    best.write_text('{"space": [], "values": {"learning_rate": 0.25, "hidden": "[8, 4]"}}')
    writer.execution("r1", "Tuner", outputs=(writer.artifact("HyperParameters", str(tmp_path)),))
    assert facts(tmp_path).tuned == {"learning_rate": 0.25, "hidden": [8, 4]}


WHOLE = SliceMetrics({}, 8, {"binary_accuracy": 0.75}, {"binary_accuracy": 0.0})
HOURS = (
    SliceMetrics({"hour": "1"}, 4, {"binary_accuracy": 1.0}, {"binary_accuracy": 0.0}),
    SliceMetrics({"hour": "2"}, 4, {"binary_accuracy": 0.5}, {"binary_accuracy": 0.0}),
)
CHECK = Check("binary_accuracy", {"hour": "2"}, "at least 0.6", 0.5, 0.5, 4, passed=False, why=None)


def evaluated(writer: Writer, folder: Path, verdict: Verdict) -> None:
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "verdict.json").write_text(verdict.to_json())
    evaluation = writer.artifact("ModelEvaluation", str(folder / "evaluation"))
    blessing = writer.artifact("ModelBlessing", blessed=int(verdict.blessed))
    writer.execution("r1", "Evaluator", outputs=(evaluation, blessing))


def test_pushed_model_has_metrics_overall_and_per_slice_a_verdict_and_a_place(writer: Writer, tmp_path: Path):
    writer.execution("r1", "Trainer", outputs=(writer.artifact("Model", "/model"),))
    evaluated(writer, tmp_path, Verdict(True, "the old one is broken", 8, (CHECK,), (WHOLE, *HOURS)))
    pushed = writer.artifact("PushedModel", pushed=1, pushed_destination="/pushed/7", pushed_version="7")
    writer.execution("r1", "Pusher", outputs=(pushed,))
    found = facts(tmp_path)
    assert (found.metrics, found.rows_evaluated, found.slices) == ({"binary_accuracy": 0.75}, 8, HOURS)
    assert (found.checks, found.verdict, found.forced) == ((CHECK,), "blessed", "the old one is broken")
    assert (found.model, found.pushed, found.pushed_version) == ("/model", "/pushed/7", "7")


def test_model_below_its_threshold_is_not_blessed(writer: Writer, tmp_path: Path):
    evaluated(writer, tmp_path, Verdict(False, None, 8, (CHECK,), (WHOLE, *HOURS)))
    writer.execution("r1", "Pusher", outputs=(writer.artifact("PushedModel", pushed=0),))
    found = facts(tmp_path)
    assert (found.checks, found.verdict, found.forced, found.pushed) == ((CHECK,), "not blessed", None, None)


def test_metrics_of_a_stock_evaluator_are_summarized(writer: Writer, tmp_path: Path):
    in_child(tmp_path / "test.log", write_evaluation, tmp_path / "evaluation")
    evaluation = writer.artifact("ModelEvaluation", str(tmp_path / "evaluation"))
    writer.execution("r1", "Evaluator", outputs=(evaluation, writer.artifact("ModelBlessing", blessed=1)))
    found = facts(tmp_path)
    assert (found.metrics, found.rows_evaluated, found.slices) == ({"binary_accuracy": 0.75}, 8, HOURS)
    assert (found.checks, found.verdict) == ((), "blessed")


def test_blessing_that_a_resolver_found_is_no_verdict(writer: Writer, tmp_path: Path):
    old = writer.artifact("ModelBlessing", blessed=1)
    writer.execution("r1", "LatestBlessedModel", outputs=(old,), event="INTERNAL_OUTPUT")
    assert facts(tmp_path).verdict == "not evaluated"
