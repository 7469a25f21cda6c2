"""Tests that the data path benchmark derives the cost per row from runs with few and with many rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import data_path, measure
from benchmarks.measure import Measurement

FIXED = {"ExampleGen": 0.5, "StatisticsGen": 0.25, "Transform": 4.0, "Evaluator": 2.0}
PER_ROW = {"ExampleGen": 4e-6, "StatisticsGen": 2e-6, "Transform": 8e-6, "Evaluator": 12e-6}


def test_cost_per_row_is_separated_from_the_fixed_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data_path, "_trips", lambda folder, rows: folder / f"{rows}.csv")
    monkeypatch.setattr(measure, "run", fake_run)
    monkeypatch.setattr(measure, "record", lambda name, command, measured, facts: json.dumps(facts, default=str))
    data_path.main(["--rows", "15000", "1000000", "--rounds", "1"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["ours, StatisticsGen"] == "2.0 CPU-µs per row and 0.2 CPU-s besides"
    assert facts["ours, Transform"] == "8.0 CPU-µs per row and 4.0 CPU-s besides"
    assert facts["ours, Evaluator"] == "12.0 CPU-µs per evaluated row and 2.0 CPU-s besides"
    assert facts["data path / plain program, 1,000,000 rows, CPU time"].startswith("4.950 ")


def fake_run(command: Sequence[str], log: Path, rows: int | None = None) -> Measurement:
    """Return the measurement of a fake run, whose nodes cost FIXED plus PER_ROW for every row."""
    if rows is not None:
        return Measurement(1, 1, 1, measure.Work(rows, 1, rows * 5e-6, 1))
    [source] = [word for word in command if word.startswith("data.path=")]
    count = int(Path(source).stem)
    evaluated = {name: count // 3 if name == "Evaluator" else count for name in FIXED}
    nodes = {
        name: {"seconds": 1.0, "cpu_seconds": FIXED[name] + PER_ROW[name] * evaluated[name], "peak_memory_mb": 500.0}
        for name in FIXED
    }
    log.write_text(json.dumps({"nodes": nodes, "rows_evaluated": evaluated["Evaluator"]}))
    return Measurement(10, 20, 900)
