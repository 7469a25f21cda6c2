"""The list of runs tells how each ended, by its own record or by its nodes alone."""

from __future__ import annotations

import fcntl
import itertools
import os

import pytest
from stored_history import History

from pipeline.core import run_record
from pipeline.inspection import run_history
from pipeline.inspection.run_history import RunListEntry


def rows(history: History, **filters: object) -> list[RunListEntry]:
    return list(run_history.list_runs(history.store, history.logs, **filters))  # type: ignore[arg-type]


def test_runs_are_listed_newest_first_with_their_results(history: History):
    listed = [(row.run, row.state, row.spans, row.verdict, row.version) for row in rows(history)]
    assert listed == [
        ("r3", "done", (3,), "not blessed", None),
        ("r2", "done", (1,), "blessed", "12"),
        ("r1", "done", (1,), "blessed", "11"),
    ]


def test_run_s_own_record_knows_more(history: History):
    history.write_record("r3", state="rejected", started=100.0, updated=107.5, metrics={"auc": 0.5})
    [row] = rows(history, newest=1)
    assert (row.state, row.started, row.seconds, row.metrics) == ("rejected", 100.0, 7.5, {"auc": 0.5})


def test_run_whose_process_has_gone_has_died(history: History):
    history.write_record("r3", state="running", started=1.0, updated=2.0)
    assert rows(history)[0].state == run_record.DIED
    lock = os.open(history.logs / "r3" / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert rows(history)[0].state == "running"
    os.close(lock)
    assert rows(history)[0].state == run_record.DIED


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
def test_state_by_the_nodes_alone(history: History, states: list[str], message: str):
    history.writer.run("r4")
    for number, state in enumerate(states):
        history.writer.execution("r4", f"N{number}", state)
    assert rows(history, newest=1)[0].state == message


def test_filters(history: History):
    history.writer.execution("r4", "Trainer", "FAILED")
    assert [row.run for row in rows(history, states=("failed",))] == ["r4"]
    assert [row.run for row in rows(history, states=("done",), newest=2)] == ["r3", "r2"]
    assert rows(history, pipeline="other") == []
    begun = {row.run: row.started for row in rows(history)}
    assert {row.run for row in rows(history, since=begun["r3"])} == {run for run in begun if begun[run] >= begun["r3"]}
    assert rows(history, since=begun["r4"] + 1) == []


def test_paging_returns_every_run(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_history, "_PAGE", 2)
    assert [row.run for row in rows(history)] == ["r3", "r2", "r1"]


def test_listing_stops_after_the_requested_runs(history: History):
    first = list(itertools.islice(run_history.list_runs(history.store, history.logs), 1))
    assert [row.run for row in first] == ["r3"]


def test_record_that_is_broken_is_none(history: History):
    (history.logs / "r3").mkdir(parents=True)
    (history.logs / "r3" / "run.json").write_text("{")
    assert run_record.read_record(history.logs, "r3") is None
    assert rows(history)[0].state == "done"
