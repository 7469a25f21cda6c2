"""Tests for the list of runs, whose states come from the runs' records or from the executions of their nodes."""

from __future__ import annotations

import fcntl
import itertools
import os

import pytest

from pipeline.core import run_record
from pipeline.inspection import run_history
from pipeline.inspection.run_history import RunListEntry
from tests.support.runs.stored_history import History


def list_entries(history: History, **filters: object) -> list[RunListEntry]:
    return list(run_history.list_runs(history.store, history.logs, **filters))  # type: ignore[arg-type]


def test_runs_are_listed_newest_first_with_their_results(history: History):
    entries = [(row.run, row.state, row.spans, row.verdict, row.version) for row in list_entries(history)]
    assert entries == [
        ("r3", "done", (3,), "not blessed", None),
        ("r2", "done", (1,), "blessed", "12"),
        ("r1", "done", (1,), "blessed", "11"),
    ]


def test_details_are_read_from_the_record_of_the_run(history: History):
    history.write_record("r3", state="rejected", started=100.0, updated=107.5, metrics={"auc": 0.5})
    [row] = list_entries(history, newest=1)
    assert (row.state, row.started, row.seconds, row.metrics) == ("rejected", 100.0, 7.5, {"auc": 0.5})


def test_run_without_a_process_has_died(history: History):
    history.write_record("r3", state="running", started=1.0, updated=2.0)
    assert list_entries(history)[0].state == run_record.DIED
    lock = os.open(history.logs / "r3" / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert list_entries(history)[0].state == "running"
    os.close(lock)
    assert list_entries(history)[0].state == run_record.DIED


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], "done"),
        (["COMPLETE", "CACHED"], "done"),
        (["COMPLETE", "RUNNING"], "running"),
        (["CANCELED", "FAILED"], "failed"),
        (["COMPLETE", "CANCELED"], "interrupted"),
    ],
)
def test_state_is_derived_from_the_nodes_if_a_run_lacks_a_record(history: History, states: list[str], message: str):
    history.writer.run("r4")
    for number, state in enumerate(states):
        history.writer.execution("r4", f"N{number}", state)
    assert list_entries(history, newest=1)[0].state == message


def test_runs_are_filtered_by_state_pipeline_and_time(history: History):
    history.writer.execution("r4", "Trainer", "FAILED")
    assert [row.run for row in list_entries(history, states=("failed",))] == ["r4"]
    assert [row.run for row in list_entries(history, states=("done",), newest=2)] == ["r3", "r2"]
    assert list_entries(history, pipeline="other") == []
    started = {row.run: row.started for row in list_entries(history)}
    assert {row.run for row in list_entries(history, since=started["r3"])} == {
        run for run in started if started[run] >= started["r3"]
    }
    assert list_entries(history, since=started["r4"] + 1) == []


def test_paging_returns_every_run(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_history, "_PAGE", 2)
    assert [row.run for row in list_entries(history)] == ["r3", "r2", "r1"]


def test_listing_stops_after_the_requested_runs(history: History):
    first = list(itertools.islice(run_history.list_runs(history.store, history.logs), 1))
    assert [row.run for row in first] == ["r3"]


def test_damaged_record_is_ignored(history: History):
    (history.logs / "r3").mkdir(parents=True)
    (history.logs / "r3" / "run.json").write_text("{")
    assert run_record.read_record(history.logs, "r3") is None
    assert list_entries(history)[0].state == "done"
