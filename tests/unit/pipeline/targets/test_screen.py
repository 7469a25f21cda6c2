"""What the user sees: plain lines, a table, one JSON object, and errors with their remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.errors import InputError
from pipeline.metadata.facts import BLESSED, NOT_BLESSED, Facts, Failure, SliceMetrics
from pipeline.targets.record import new_run
from pipeline.targets.result import NodeResult, RunResult
from pipeline.targets.screen import Screen, summary

FACTS = Facts(
    rows_read=15002,
    rows={"train": 10050, "eval": 4952},
    metrics={"auc": 0.95123456, "example_count": 4952.0},
    slices=tuple(SliceMetrics({"trip_start_hour": str(hour)}, {"auc": 0.9}) for hour in range(24)),
    validation_ok=True,
    verdict=BLESSED,
    pushed="/out/pushed/7",
    pushed_version="7",
)


def result(state: str = "done", exit_code: int = 0, error: InputError | None = None, facts: Facts = FACTS) -> RunResult:
    node = NodeResult("Trainer", "failed" if error else "done", 2.5, 3.25, 512.0, None, None, error)
    return RunResult("r1", "taxi", state, 61.234, 9.5, (node,), error, exit_code, facts, None)


def test_plain_writes_one_line_per_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = new_run(tmp_path, "toy", (), ())
    record.add_nodes(["Ingest"])
    with Screen("plain", record) as screen:
        node = record.nodes["Ingest"]
        node.state = "running"
        screen.change("Ingest")
        screen.tick()
        node.state, node.seconds, node.cpu_seconds, node.peak_memory_mb, node.rows = "done", 1.25, 2.5, 1234.0, 15002
        screen.change("Ingest")
    record.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run {record.run} of toy, logs in {record.folder}"
    assert lines[1:] == ["Ingest: running", "Ingest: done in 1.2 s, 2.5 CPU-s, 1,234 MB, 15,002 rows"]


def test_live_draws_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    record = new_run(tmp_path, "toy", (), ())
    with Screen("live", record) as screen:
        record.add_nodes(["Ingest", "Trainer"])
        record.nodes["Ingest"].state = "running"
        record.nodes["Ingest"].rows = 15002
        screen.tick()
    record.close()
    drawn = capsys.readouterr().out
    assert "node" in drawn
    assert "running" in drawn
    assert "15,002" in drawn


def test_json_is_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = new_run(tmp_path, "toy", (), ())
    with Screen("json", record) as screen:
        screen.change(None)
    record.close()
    summary(result(), "json")
    out = capsys.readouterr().out
    told = json.loads(out)
    assert out.count("\n") == 1
    assert (told["run"], told["state"], told["seconds"], told["verdict"]) == ("r1", "done", 61.234, "blessed")
    assert told["nodes"]["Trainer"]["cpu_seconds"] == 3.25
    assert told["rows"] == {"train": 10050, "eval": 4952}
    assert told["slices"][5] == {"slice": {"trip_start_hour": "5"}, "metrics": {"auc": 0.9}}
    assert told["pushed"] == "/out/pushed/7"


def test_the_summary_tells_rows_metrics_verdict_and_where_the_model_went(capsys: pytest.CaptureFixture[str]):
    summary(result(), "plain")
    out = capsys.readouterr().out
    assert "rows: train 10,050, eval 4,952 (of 15,002 read)" in out
    assert "0.9512" in out
    assert "trip_start_hour = 5" in out
    assert "12 more slices" in out
    assert "done in 61.2 s; the model is blessed" in out
    assert "model pushed to /out/pushed/7" in out


def test_the_summary_tells_the_error_its_findings_and_the_remedy(capsys: pytest.CaptureFixture[str]):
    summary(result("failed", 2, InputError("no [label]", "name one", ["a", "b"]), Facts()), "plain")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "failed in 61.2 s",
        "--resume r1 goes on from where it stopped",
        "error: no [label]",
        "  - a",
        "  - b",
        "  remedy: name one",
    ]


def test_the_summary_tells_why_a_model_was_refused(capsys: pytest.CaptureFixture[str]):
    failure = Failure("auc", {"hour": "3"}, 0.5, "at least 0.6")
    summary(result("rejected", 3, facts=Facts(verdict=NOT_BLESSED, failures=(failure,))), "plain")
    out = capsys.readouterr().out
    assert "rejected in 61.2 s; the model is not blessed" in out
    assert "auc where hour = 3: expected at least 0.6, received 0.5" in out


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
def test_the_summary_tells_what_a_cluster_has_suffered(
    capsys: pytest.CaptureFixture[str], training: dict[str, int], line: str | None
):
    summary(result(facts=Facts(training=training)), "plain")
    told = [each for each in capsys.readouterr().out.splitlines() if each.startswith("training")]
    assert told == ([] if line is None else [line])
