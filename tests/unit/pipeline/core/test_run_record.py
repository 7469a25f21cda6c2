"""Tests for the folder of a run: its ID, its lock, and its record."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError, MachineError
from pipeline.core import run_record
from pipeline.core.run_record import RunRecord, create_run, reopen_run


def create_toy_run(logs: Path) -> RunRecord:
    return create_run(logs, "toy", (), ())


def test_ids_of_runs_in_the_same_second_sort_by_start_time(tmp_path: Path):
    runs = [create_toy_run(tmp_path) for _ in range(50)]
    ids = [run.run for run in runs]
    assert len(set(ids)) == 50
    assert ids == sorted(ids)
    assert [run.started for run in runs] == sorted(run.started for run in runs)
    for run in runs:
        run.close()


def test_id_contains_the_start_time_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 1795462491.25)
    record = create_toy_run(tmp_path)
    assert re.fullmatch(r"20261123T193451-250000-[0-9a-f]{4}", record.run)
    assert record.started == 1795462491.25
    record.close()


def test_record_is_written_and_read_again(tmp_path: Path):
    record = create_run(tmp_path, "toy", ("A",), ("B",))
    record.add_nodes({"A": (), "B": ("A",)})
    record.nodes["A"].state, record.nodes["A"].cpu_seconds, record.nodes["A"].attempts = "done", 1.5, 2
    record.add_attempt(record.nodes["A"])
    record.save()
    written = json.loads((record.folder / "run.json").read_text())
    assert written["nodes"]["A"]["state"] == "done"
    assert written["nodes"]["B"]["state"] == "waiting"
    assert [path.name for path in record.folder.glob("run.json*")] == ["run.json"]
    attempts = [json.loads(line) for line in (record.folder / "attempts.jsonl").read_text().splitlines()]
    assert [(attempt["node"], attempt["attempt"], attempt["state"]) for attempt in attempts] == [("A", 2, "done")]
    record.close()

    reopened = reopen_run(tmp_path, "toy", record.run)
    reopened.add_nodes({"A": (), "B": ("A",)})
    assert (reopened.from_nodes, reopened.to_nodes, reopened.started) == (("A",), ("B",), record.started)
    assert (reopened.nodes["A"].state, reopened.nodes["A"].cpu_seconds, reopened.nodes["A"].attempts) == (
        "waiting",
        1.5,
        2,
    )
    reopened.close()


def test_figures_are_saved_while_the_run_is_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def read_seconds() -> float:
        return float(json.loads((record.folder / "run.json").read_text())["nodes"]["A"]["seconds"])

    record = create_toy_run(tmp_path)
    record.add_nodes({"A": ()})
    record.save()
    record.nodes["A"].seconds = 2.5
    monkeypatch.setattr("pipeline.core.run_record._SAVED_EVERY_SECONDS", 1e9)
    record.tick()
    assert read_seconds() == 0
    monkeypatch.setattr("pipeline.core.run_record._SAVED_EVERY_SECONDS", 0)
    record.tick()
    assert read_seconds() == 2.5
    record.close()


def write_finished_run(logs: Path, run: str, started: float) -> None:
    (logs / run).mkdir()
    content = {"run": run, "pipeline": "toy", "started": started, "from_nodes": [], "to_nodes": [], "nodes": {}}
    (logs / run / "run.json").write_text(json.dumps(content))


def test_latest_run_is_the_run_that_started_last(tmp_path: Path):
    for _ in range(10):
        first, second = create_toy_run(tmp_path), create_toy_run(tmp_path)
        first.close()
        second.close()
        latest = reopen_run(tmp_path, "toy", "latest")
        assert latest.run == second.run
        latest.close()


def test_latest_run_does_not_depend_on_the_ids(tmp_path: Path):
    # Orchestrators choose the IDs of their runs.
    write_finished_run(tmp_path, "20261123T193451-ffff", 1795462491.1)
    write_finished_run(tmp_path, "20261123T193451-200000-0000", 1795462491.2)
    write_finished_run(tmp_path, "manual__2026-11-23", 1795462480.0)
    latest = reopen_run(tmp_path, "toy", "latest")
    assert latest.run == "20261123T193451-200000-0000"
    latest.close()
    write_finished_run(tmp_path, "20261123T193451-0000", 1795462491.3)
    with pytest.raises(InputError) as error:
        reopen_run(tmp_path, "toy", "unknown")
    assert "the newest run is 20261123T193451-0000" in error.value.remedy


def test_damaged_record_is_not_the_latest_run(tmp_path: Path):
    write_finished_run(tmp_path, "20261123T193451-0000", 1795462491.3)
    write_finished_run(tmp_path, "20261123T193452-0000", 1795462492.3)
    (tmp_path / "20261123T193452-0000" / "run.json").write_text("{")
    latest = reopen_run(tmp_path, "toy", "latest")
    assert latest.run == "20261123T193451-0000"
    latest.close()


def test_unknown_run_is_reported_with_the_newest_run(tmp_path: Path):
    with pytest.raises(InputError, match="expected a run of toy, received 'latest'") as raised:
        reopen_run(tmp_path, "toy", "latest")
    assert "no earlier run" in raised.value.remedy
    record = create_toy_run(tmp_path)
    record.close()
    with pytest.raises(InputError, match="received 'x'") as raised:
        reopen_run(tmp_path, "toy", "x")
    assert record.run in raised.value.remedy


def _hold(logs: Path, ready: multiprocessing.connection.Connection) -> None:
    record = create_toy_run(logs)
    ready.send(record.run)
    ready.recv()


def test_run_of_a_live_process_is_not_resumed(tmp_path: Path):
    connection, child_connection = multiprocessing.Pipe()
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path, child_connection))
    holder.start()
    run = connection.recv()
    with pytest.raises(InputError, match="still in progress"):
        reopen_run(tmp_path, "toy", run)
    connection.send("end")
    holder.join()
    reopen_run(tmp_path, "toy", run).close()


def test_shared_lock_does_not_prevent_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    record = create_toy_run(tmp_path)
    record.close()
    reader = os.open(record.folder / "lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(reader))
    reopen_run(tmp_path, "toy", record.run).close()


def test_run_that_ends_while_it_is_listed_has_not_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    running, read = create_toy_run(tmp_path), run_record._read
    run = running.run

    def end_after_the_first_read(file: Path) -> Any:
        content = read(file)
        if content and content["state"] == "running":
            running.state = "done"
            running.save()
            running.close()
        return content

    with monkeypatch.context() as patch:
        patch.setattr(run_record, "_read", end_after_the_first_read)
        assert (run_record.read_record(tmp_path, run) or {})["state"] == "done"
    reopen_run(tmp_path, "toy", run).close()
    assert (run_record.read_record(tmp_path, run) or {})["state"] == "died"


def test_resumed_run_has_the_last_figures_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    running, lock = create_toy_run(tmp_path), RunRecord.lock
    running.add_nodes({"A": ()})
    running.save()

    def end_before(record: RunRecord) -> None:
        running.nodes["A"].attempts = 3
        running.save()
        running.close()
        lock(record)

    monkeypatch.setattr(RunRecord, "lock", end_before)
    reopened = reopen_run(tmp_path, "toy", running.run)
    assert reopened.nodes["A"].attempts == 3
    reopened.close()


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path):
    (tmp_path / "logs").write_text("a file in the way")
    with pytest.raises(MachineError, match="cannot be created"):
        create_toy_run(tmp_path / "logs")
