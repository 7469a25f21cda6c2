"""Tests for the answers that a report begins with: comparisons in words, reasons, worse slices, changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.evaluator.verdict import Check, ConstantMetric, MissedClasses, SliceMetrics
from pipeline.core.records import RunSummary
from pipeline.inspection.report.answer import Answer, Remark, make_answer
from pipeline.inspection.report.content import Content, TrainedBefore
from tests.support.runs.report_runs import content_of, write_run
from tests.support.runs.store_writer import Writer


def answer(config: Any = None, error: str = "", **summary: Any) -> Answer:
    return make_answer(Content({"error": error}, RunSummary(**summary), config=config))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"label": "tip", "task": "binary"}, "the probability that tip is true, from data with 2 columns"),
        ({"label": "fare", "task": "regression"}, "the number fare, from data with 2 columns"),
        (
            {"labels": {"click": "clicked", "buy": "price > 0", "x": "x"}, "task": "binary"},
            "the probability that click (clicked), buy (price > 0) and x is true, from data with 2 columns",
        ),
    ],
)
def test_prediction_is_named_after_the_label(data: dict[str, Any], expected: str):
    assert answer({"data": data}, column_types={"tip": "int", "fare": "float"}).predicts == expected


@pytest.mark.parametrize(
    ("name", "value", "constant", "baseline", "judgement"),
    [
        ("auc", 0.75, ConstantMetric(0.5), 0.7, "better than the best constant; 0.05 better than the previous"),
        ("auc", 0.75, ConstantMetric(0.5, 0.25, (-0.1, 0.6)), None, "not certainly better than the best constant"),
        ("mean_squared_error", 5.0, ConstantMetric(4.0), 4.5, "worse than the best constant; 0.5 worse than"),
        ("mean_squared_error", 3.0, ConstantMetric(4.0, 1.0, (0.5, 1.5)), 3.0, "better than the best constant; equal"),
        ("calibration", 1.25, None, 0.5, "0.25 better than the previous model"),
        ("buy/auc", 0.25, ConstantMetric(0.5), None, "worse than the best constant"),
        ("a metric of another Evaluator", 0.25, ConstantMetric(0.5), 0.5, ""),
    ],
)
def test_metric_is_compared_in_words(
    name: str, value: float, constant: ConstantMetric | None, baseline: float | None, judgement: str
):
    [measured] = answer(
        metrics={name: value},
        constant={name: constant} if constant else {},
        baseline={} if baseline is None else {name: baseline},
    ).measurements
    assert measured.judgement.startswith(judgement)
    assert bool(measured.judgement) == bool(judgement)


def test_metric_is_compared_with_a_linear_model():
    auc, error = answer(
        metrics={"auc": 0.75, "mean_squared_error": 3.0},
        linear={"auc": 0.8, "mean_squared_error": 3.5},
        baseline={"auc": 0.75},
    ).measurements
    assert (auc.linear, auc.judgement) == (0.8, "0.05 worse than a linear model; equal to the previous model")
    assert (error.linear, error.judgement) == (3.5, "0.5 better than a linear model")


def make_check(passed: bool, judged: bool = True, metric: str = "auc") -> Check:
    return Check(metric, {}, "at least 0.5", 0.25, None, 4, passed, None, judged)


def test_reasons_name_what_decided():
    blessed = answer(verdict="blessed", checks=(make_check(True), make_check(True, judged=False)))
    assert [reason.state for reason in blessed.reasons] == ["pass"]
    assert "meets all 1 bounds that were judged; 1 more could not be judged" in blessed.reasons[0].text
    rejected = answer(verdict="not blessed", checks=tuple(make_check(False) for _ in range(6)))
    assert [reason.state for reason in rejected.reasons] == ["fail"] * 5
    assert rejected.reasons[-1].text == "2 more bounds, see the evaluation"
    forced = answer(verdict="blessed", forced="for a test", checks=(make_check(False),))
    assert forced.reasons[0] == Remark("warning", "The model was blessed by force: for a test; 1 bounds failed.")
    assert answer(error="out of memory").reasons == [Remark("failed", "out of memory")]
    assert answer().reasons == [Remark("not evaluated", "The run did not evaluate a model.")]


def test_slices_fail_if_their_interval_is_on_the_worse_side():
    def part(value: float, interval: tuple[float, float], rows: int = 10) -> SliceMetrics:
        return SliceMetrics({"company": f"{value}"}, rows, {"auc": value}, {}, {"auc": interval})

    slices = (part(0.6, (0.5, 0.7)), part(0.7, (0.5, 0.9)), part(0.4, (0.3, 0.5)), part(0.95, (0.9, 1.0)))
    failures = answer(metrics={"auc": 0.8}, slices=slices).failures
    assert [failure.text for failure in failures] == [
        "company = 0.4 (10 rows): auc 0.4000, overall 0.8000",
        "company = 0.6 (10 rows): auc 0.6000, overall 0.8000",
    ]
    [none] = answer(metrics={"auc": 0.8}, slices=slices[1:2]).failures
    assert none == Remark("pass", "No slice has a clearly worse auc than the whole.")


def test_class_without_recall_is_a_failure():
    [failure] = answer(missed_classes=MissedClasses({"dog": 7.0}, None)).failures
    assert failure == Remark("warning", "the model never recognizes dog (7 rows): recall 0 %")


def test_run_is_compared_with_the_last_that_trained_another_model(tmp_path: Path):
    writer = write_run(tmp_path)
    write_run(tmp_path, "r2", writer, fares=3.0)
    # A run that trains nothing, such as the check of whether data is due, comes between.
    Writer(tmp_path / "metadata.db").execution("check", "ExampleGen")
    write_run(tmp_path, "r3", writer, fares=3.0)
    content = content_of(tmp_path, "r3")
    assert content.trained_before
    assert content.trained_before.run == "r2"
    assert make_answer(content).changes == []
    content = content_of(tmp_path, "r2")
    assert content.trained_before
    assert content.trained_before.run == "r1"
    [data] = make_answer(content).changes
    assert data.startswith("columns of the data: fare (distance ")


def test_changes_name_config_and_metrics():
    before = TrainedBefore("r1", {"training.steps": ["30", "60"], "model.kind": [None, "mlp"]}, {"auc": 0.5})
    content = Content({"error": ""}, RunSummary(metrics={"auc": 0.75}), trained_before=before)
    assert make_answer(content).changes == [
        "training.steps: 30 → 60",
        "model.kind: not set → mlp",
        "auc: 0.5000 → 0.7500",
    ]
