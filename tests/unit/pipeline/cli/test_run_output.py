"""Tests for the output of a run: plain lines, a live table, a JSON object, and errors with their remedies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from components.evaluator.verdict import Check, ConstantMetric, MissedClasses, SliceMetrics
from components.results.decision import Decision
from pipeline.cli.run_output import ProgressDisplay, print_summary
from pipeline.core.records import BLESSED, NOT_BLESSED, NodeResult, RunResult, RunSummary
from pipeline.core.run_record import create_run

SUMMARY = RunSummary(
    rows_read=15002,
    rows={"train": 10050, "eval": 4952},
    joins=({"path": ["/side/a.csv", "/side/b.csv"], "rows": 15002, "matched": 14000},),
    metrics={"auc": 0.95123456, "recall": 0.25},
    rows_evaluated=4952,
    slices=tuple(SliceMetrics({"trip_start_hour": str(hour)}, 200, {"auc": 0.9}, {}) for hour in range(24)),
    checks=(Check("auc", {}, "at least 0.9", 0.95123456, None, 4952, passed=True, why=None),),
    verdict=BLESSED,
    pushed="/out/pushed/7",
    pushed_version="7",
)


def make_result(
    state: str = "done", exit_code: int = 0, error: InputError | None = None, summary: RunSummary = SUMMARY
) -> RunResult:
    node = NodeResult("Trainer", "failed" if error else "done", 2.5, 3.25, 512.0, None, None, error)
    return RunResult("r1", "taxi", state, 61.234, 9.5, (node,), error, exit_code, summary, None)


def test_last_line_is_the_path_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = tmp_path / "report.html"
    print_summary(replace(make_result(), report=report), "plain")
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {report}"


def test_run_that_waits_for_an_approval_says_who_has_to_do_what(capsys: pytest.CaptureFixture[str]):
    summary = replace(SUMMARY, pushed=None, pushed_version=None, awaits_approval=True)
    print_summary(make_result(summary=summary), "plain")
    out = capsys.readouterr().out
    assert "done in 61.2 s; the model is blessed" in out
    command = "python runner.py models approve r1 --by NAME --note TEXT"
    assert out.splitlines()[-1] == f"the model is not pushed yet; it waits for an approval: {command}"


def test_plain_output_has_one_line_per_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = create_run(tmp_path, "toy", (), ())
    record.add_nodes({"Ingest": ()})
    with ProgressDisplay("plain", record) as display:
        node = record.nodes["Ingest"]
        node.state = "running"
        display.node_changed("Ingest")
        display.tick()
        node.state, node.seconds, node.cpu_seconds, node.peak_memory_mb, node.rows = "done", 1.25, 2.5, 1234.0, 15002
        display.node_changed("Ingest")
    record.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run {record.run} of toy, logs in {record.folder}"
    assert lines[1:] == ["Ingest: running", "Ingest: done in 1.2 s, 2.5 CPU-s, 1,234 MB, 15,002 rows"]


def test_live_output_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    record = create_run(tmp_path, "toy", (), ())
    with ProgressDisplay("live", record) as display:
        record.add_nodes({"Ingest": (), "Trainer": ("Ingest",)})
        record.nodes["Ingest"].state = "running"
        record.nodes["Ingest"].rows = 15002
        display.tick()
    record.close()
    output = capsys.readouterr().out
    assert "node" in output
    assert "running" in output
    assert "15,002" in output


def test_reports_of_a_running_node_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = create_run(tmp_path, "toy", (), ())
    record.add_nodes({"Tuner": (), "Trainer": ("Tuner",)})
    node = record.nodes["Tuner"]
    with ProgressDisplay("plain", record) as display:
        for state, written in (
            ("waiting", "t I progress: too early\n"),
            ("running", "t I root: trial 0\nt I progress: trial 1 of 2\nt I root: step 50\n"),
            ("running", ""),
            ("running", "t I progress: trial 2 of 2\n" + "x" * 40_000),
            ("running", "t I progress: \x1b[31mred\n"),
        ):
            node.state = state
            with node.log.open("a") as log:
                log.write(written)
            display.tick()
        node.log.write_text("t I progress: trial 2 of 2\n")
        node.state = "done"
        display.tick()
    record.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:2] == ["Tuner: trial 1 of 2"]
    assert len(lines) == 3, "the report before 40,000 other bytes is not read, and a node that has ended is not either"
    assert "\x1b" not in lines[2]
    assert "red" in lines[2]


def test_json_output_is_a_single_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = create_run(tmp_path, "toy", (), ())
    with ProgressDisplay("json", record) as display:
        display.node_changed(None)
    record.close()
    print_summary(make_result(), "json")
    out = capsys.readouterr().out
    run = json.loads(out)
    assert out.count("\n") == 1
    assert (run["run"], run["state"], run["seconds"], run["verdict"]) == (
        "r1",
        "done",
        61.234,
        "blessed",
    )
    assert run["nodes"]["Trainer"]["cpu_seconds"] == 3.25
    assert run["rows"] == {"train": 10050, "eval": 4952}
    assert run["slices"][5] == {
        "slice": {"trip_start_hour": "5"},
        "rows": 200,
        "metrics": {"auc": 0.9},
        "baseline": {},
        "intervals": {},
        "constant": {},
        "linear": {},
    }
    assert [(make_check["metric"], make_check["passed"]) for make_check in run["checks"]] == [("auc", True)]
    assert run["pushed"] == "/out/pushed/7"


def test_summary_shows_rows_metrics_verdict_and_push_path(capsys: pytest.CaptureFixture[str]):
    print_summary(make_result(), "plain")
    out = capsys.readouterr().out
    assert "rows: train 10,050, eval 4,952 (of 15,002 read)" in out
    assert "joined /side/a.csv, /side/b.csv: 14,000 of 15,002 rows have a match" in out
    assert "0.9512" in out
    assert "trip_start_hour = 5" in out
    assert "12 more slices" in out
    assert "done in 61.2 s; the model is blessed" in out
    assert "model pushed to /out/pushed/7" in out


def test_summary_counts_slices_that_are_left_out(capsys: pytest.CaptureFixture[str]):
    print_summary(make_result(summary=replace(SUMMARY, slices=SUMMARY.slices[:13])), "plain")
    assert "… 1 more slice" in [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_summary_shows_the_error_with_its_details_and_remedy(capsys: pytest.CaptureFixture[str]):
    print_summary(make_result("failed", 2, InputError("no [label]", "name one", ["a", "b"]), RunSummary()), "plain")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "failed in 61.2 s",
        "--resume r1 continues from where it stopped",
        "error: no [label]",
        "  - a",
        "  - b",
        "  remedy: name one",
    ]


def test_rates_of_groups_are_in_a_separate_table(capsys: pytest.CaptureFixture[str]):
    rates = {"false_positive_rate": 0.1, "positive_rate": 0.25}
    slices = (
        SliceMetrics({"gender": "a"}, 60, {"auc": 0.5, **rates}, {}),
        SliceMetrics({"hour": "3"}, 9, {"auc": 0.75}, {}),
    )
    summary = RunSummary(metrics={"auc": 0.95, **rates}, rows_evaluated=69, slices=slices)
    print_summary(make_result(summary=summary), "plain")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()][:7] == [
        "slice       rows   auc",
        "overall       69  0.95",
        "gender = a    60   0.5",
        "hour = 3       9  0.75",
        "slice       rows  false_positive_rate  positive_rate",
        "overall       69                  0.1           0.25",
        "gender = a    60                  0.1           0.25",
    ]


def test_references_and_warnings_are_shown(capsys: pytest.CaptureFixture[str]):
    summary = RunSummary(
        metrics={"auc": 0.95, "recall": 0.5},
        rows_evaluated=69,
        slices=(SliceMetrics({"hour": "3"}, 9, {"auc": 0.75}, {}),),
        constant={"auc": ConstantMetric(0.5), "brier_score": ConstantMetric(0.25)},
        linear={"auc": 0.9, "brier_score": 0.1},
        verdict=BLESSED,
        warnings=("leakage of refund [0]: expected below 0.998, received 1",),
        missed_classes=MissedClasses({"yes": 3}, 0.5),
    )
    print_summary(make_result(summary=summary), "plain")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "slice          rows   auc  recall",
        "overall          69  0.95     0.5",
        "best constant         0.5",
        "linear model          0.9",
        "hour = 3          9  0.75",
        "done in 61.2 s; the model is blessed",
        "  - warning: leakage of refund [0]: expected below 0.998, received 1",
        "  - warning: the model never recognizes yes (3 rows): recall 0 % at probability 0.5",
    ]


def test_decisions_are_shown_per_label_and_in_json(capsys: pytest.CaptureFixture[str]):
    decisions = {
        "click": Decision(0.25, "highest f1", None, None, {"f1": 0.5}, 1200, 90),
        "buy": Decision(0.75, "threshold 0.75"),
    }
    result = make_result(summary=RunSummary(decisions=decisions, verdict=BLESSED))
    print_summary(result, "plain")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "decision on click: the class is 1 from a probability of 0.25: highest f1; on 1,200 validation rows, 90 with "
        "label 1",
        "decision on buy: the class is 1 from a probability of 0.75; not measured on validation rows",
    ]
    print_summary(result, "json")
    written = json.loads(capsys.readouterr().out)["decisions"]
    assert (written["click"]["threshold"], written["click"]["metrics"]) == (0.25, {"f1": 0.5})


def make_check(passed: bool = True, **fields: Any) -> Check:
    defaults = {"metric": "auc", "slice": {"hour": "3"}, "bound": "at least 0.6", "value": 0.5, "baseline": None}
    return Check(**{**defaults, "rows": 60, "passed": passed, "why": None, **fields})


def print_checks(capsys: pytest.CaptureFixture[str], *checks: Check, **fields: Any) -> list[str]:
    print_summary(make_result("rejected", 3, summary=RunSummary(checks=checks, **fields)), "plain")
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_summary_shows_why_a_model_was_rejected(capsys: pytest.CaptureFixture[str]):
    checks = (
        make_check(slice={}, value=0.95, baseline=0.9412345678, bound="at most 0.1 below the baseline"),
        make_check(passed=False),
        make_check(passed=False, value=None, why="not a number"),
        make_check(why="not judged: 11 rows of 50", judged=False),
    )
    assert print_checks(capsys, *checks, verdict=NOT_BLESSED) == [
        "check  slice     expected                        value  baseline",
        "auc    hour = 3  at least 0.6                      0.5            fail",
        "auc    hour = 3  at least 0.6                                     fail (not a number)",
        "auc    overall   at most 0.1 below the baseline   0.95  0.941235  pass",
        "auc    hour = 3  at least 0.6                      0.5            not judged: 11 rows of 50",
        "rejected in 61.2 s; the model is not blessed",
        "  - auc where hour = 3: expected at least 0.6, received 0.5",
        "  - auc where hour = 3: expected at least 0.6, received none (not a number)",
    ]


def test_long_check_table_shows_every_failed_check(capsys: pytest.CaptureFixture[str]):
    lines = print_checks(capsys, *[make_check()] * 20, *[make_check(passed=False)] * 20, verdict=NOT_BLESSED)
    table = lines[1 : lines.index("rejected in 61.2 s; the model is not blessed")]
    assert [line.endswith("fail") for line in table] == [True] * 20 + [False] * 13
    assert table[-1] == "… 8 more passed"


@pytest.mark.parametrize(("failed", "count"), [(1, "1 check"), (2, "2 checks")])
def test_summary_shows_that_a_blessing_was_forced(capsys: pytest.CaptureFixture[str], failed: int, count: str):
    lines = print_checks(capsys, *[make_check(passed=False)] * failed, verdict=BLESSED, forced="the old one is broken")
    message = f"rejected in 61.2 s; the model is blessed by force: the old one is broken; {count} failed"
    assert message in lines


@pytest.mark.parametrize(
    ("training", "line"),
    [
        (
            {"steps": 1200, "restarts": 2, "repeated": 40, "damaged": 1},
            "training: 1,200 steps (restarts 2, steps repeated 40, damaged checkpoints 1)",
        ),
        ({"steps": 200, "restarts": 1, "repeated": 0, "damaged": 0}, "training: 200 steps (restarts 1)"),
        ({"steps": 200, "restarts": 0, "repeated": 0, "damaged": 0}, None),
        ({}, None),
    ],
)
def test_summary_shows_restarts_of_a_cluster(
    capsys: pytest.CaptureFixture[str], training: dict[str, int], line: str | None
):
    print_summary(make_result(summary=RunSummary(training=training)), "plain")
    output = [output_line for output_line in capsys.readouterr().out.splitlines() if output_line.startswith("training")]
    assert output == ([] if line is None else [line])


def test_summary_shows_the_tuned_values(capsys: pytest.CaptureFixture[str]):
    print_summary(
        make_result(summary=RunSummary(tuned={"learning_rate": 0.0123456, "hidden": [8, 4], "kind": "mlp"})), "plain"
    )
    assert "tuned: learning_rate 0.01235, hidden [8, 4], kind mlp" in capsys.readouterr().out.splitlines()
