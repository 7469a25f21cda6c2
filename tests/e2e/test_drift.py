"""A schedule that waits for the data to move: nodes of the pipeline count it, and the run that follows takes that."""

from __future__ import annotations

import json
from pathlib import Path

import people
import pytest
from command import command
from store_writer import Writer

pytestmark = pytest.mark.e2e


def test_run_is_due_when_a_column_has_moved(tmp_path: Path) -> None:
    def comes(span: int, more_hours: int = 0) -> None:
        (tmp_path / str(span)).mkdir()
        table = [{**row, "hours": row["hours"] + more_hours} for row in people.rows(4000, seed=span)]
        people.write(tmp_path / str(span) / "people.csv", table)

    schedule = {"start": "2026-01-01", "only_if": "drift", "drift": 0.2}
    config = people.write_config(tmp_path / "people.yaml", tmp_path / "{SPAN}" / "people.csv", schedule=schedule)
    shared = ("--config", str(config), "--output", str(tmp_path / "out"))

    def due(expected: int) -> str:
        ended = command("due", *shared)
        assert (ended.exit_code, ended.err) == (expected, "")
        return ended.out

    comes(1)
    assert due(0) == "due: no run has judged a model yet; the newest span is 1\n"
    first = json.loads(command("--local", *shared, "--to", "StatisticsGen", "--json").out)["run"]
    # Of the rest of the run, only its verdict matters.
    writer = Writer(tmp_path / "out/people/metadata.db", "people")
    writer.execution(first, "Evaluator", outputs=[writer.artifact("ModelBlessing", "/b", blessed=1)])
    assert "took span 1, and there is none after it" in due(3)

    comes(2)
    assert f"span 2 has not drifted by 0.2 from run {first}: at most " in due(3)
    comes(3, more_hours=40)
    assert due(0).startswith(f"due: span 3 has drifted from run {first}: hours ")

    run = command("--local", *shared, "--to", "StatisticsGen", "--json")
    assert run.states["StatisticsGen"] == "cached"
