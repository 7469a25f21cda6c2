"""A schedule that waits for drift: nodes of the pipeline compute statistics, and the following run reuses them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.data import people
from tests.support.runs.command import command
from tests.support.runs.store_writer import Writer

pytestmark = pytest.mark.e2e


def test_run_is_due_when_a_column_has_moved(tmp_path: Path) -> None:
    def comes(span: int, more_hours: int = 0) -> None:
        (tmp_path / str(span)).mkdir()
        table = [{**row, "hours": row["hours"] + more_hours} for row in people.rows(4000, seed=span)]
        people.write(tmp_path / str(span) / "people.csv", table)

    schedule = {"start": "2026-01-01", "only_if": "drift", "drift": 0.2}
    keep = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    notify = [{"command": [sys.executable, "-c", keep, str(tmp_path / "notified")]}]
    data = tmp_path / "{SPAN}" / "people.csv"
    config = people.write_config(tmp_path / "people.yaml", data, schedule=schedule, notify=notify)
    shared = ("--config", str(config), "--output", str(tmp_path / "out"))

    def due(expected: int) -> str:
        ended = command("due", *shared)
        assert (ended.exit_code, ended.err) == (expected, "")
        return ended.out

    comes(1)
    assert due(0) == "due: no run has judged a model yet; the newest span is 1\n"
    first = json.loads(command("--local", *shared, "--to", "StatisticsGen", "--json").out)["run"]
    # Only the verdict of the remaining nodes matters.
    writer = Writer(tmp_path / "out/people/metadata.db", "people")
    writer.execution(first, "Evaluator", outputs=[writer.artifact("ModelBlessing", "/b", blessed=1)])
    assert "took span 1, and there is none after it" in due(3)

    comes(2)
    assert f"span 2 has not drifted by 0.2 from run {first}: at most " in due(3)
    assert not (tmp_path / "notified").exists()
    comes(3, more_hours=40)
    why = due(0).removeprefix("due: ").strip()
    assert why.startswith(f"span 3 has drifted from run {first}: hours ")
    note = json.loads((tmp_path / "notified").read_text())
    assert (note["event"], note["run"], note["text"]) == ("drift", first, f"people: {why}")
    assert note["details"]["span"] == 3
    assert note["details"]["columns"]["hours"] > 0.2

    run = command("--local", *shared, "--to", "StatisticsGen", "--json")
    assert run.states["StatisticsGen"] == "cached"
