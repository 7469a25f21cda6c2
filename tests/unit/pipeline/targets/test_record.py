"""A run's folder: ids, the lock, and what an interrupted writer leaves."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from components.errors import InputError, MachineError
from pipeline.targets.record import RunRecord, new_run, old_run


def begin(logs: Path) -> RunRecord:
    return new_run(logs, "toy", (), ())


def test_runs_of_the_same_second_have_ids_of_their_own_that_sort_by_time(tmp_path: Path):
    runs = [begin(tmp_path) for _ in range(50)]
    ids = [run.run for run in runs]
    assert len(set(ids)) == 50
    seconds = [run.split("-")[0] for run in ids]
    assert seconds == sorted(seconds)
    for run in runs:
        run.close()


def test_a_run_is_written_whole_and_read_again(tmp_path: Path):
    record = new_run(tmp_path, "toy", ("A",), ("B",))
    record.add_nodes({"A": (), "B": ("A",)})
    record.nodes["A"].state, record.nodes["A"].cpu_seconds, record.nodes["A"].attempts = "done", 1.5, 2
    record.add_attempt(record.nodes["A"])
    record.save()
    told = json.loads((record.folder / "run.json").read_text())
    assert told["nodes"]["A"]["state"] == "done"
    assert told["nodes"]["B"]["state"] == "waiting"
    assert [path.name for path in record.folder.glob("run.json*")] == ["run.json"]
    attempts = [json.loads(line) for line in (record.folder / "attempts.jsonl").read_text().splitlines()]
    assert [(each["node"], each["attempt"], each["state"]) for each in attempts] == [("A", 2, "done")]
    record.close()

    again = old_run(tmp_path, "toy", record.run)
    again.add_nodes({"A": (), "B": ("A",)})
    assert (again.from_nodes, again.to_nodes, again.started) == (("A",), ("B",), record.started)
    assert (again.nodes["A"].state, again.nodes["A"].cpu_seconds, again.nodes["A"].attempts) == ("waiting", 1.5, 2)
    again.close()


def test_with_time_the_figures_grow_for_whoever_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def seconds() -> float:
        return float(json.loads((record.folder / "run.json").read_text())["nodes"]["A"]["seconds"])

    record = begin(tmp_path)
    record.add_nodes({"A": ()})
    record.save()
    record.nodes["A"].seconds = 2.5
    monkeypatch.setattr("pipeline.targets.record._SAVED_EVERY_SECONDS", 1e9)
    record.tick()
    assert seconds() == 0
    monkeypatch.setattr("pipeline.targets.record._SAVED_EVERY_SECONDS", 0)
    record.tick()
    assert seconds() == 2.5
    record.close()


def test_latest_is_the_newest(tmp_path: Path):
    first, second = begin(tmp_path), begin(tmp_path)
    first.close()
    second.close()
    latest = old_run(tmp_path, "toy", "latest")
    assert latest.run == max(first.run, second.run)
    latest.close()


def test_an_unknown_run_is_told_with_the_newest_one(tmp_path: Path):
    with pytest.raises(InputError, match="expected a run of toy, received 'latest'") as told:
        old_run(tmp_path, "toy", "latest")
    assert "no earlier run" in told.value.remedy
    record = begin(tmp_path)
    record.close()
    with pytest.raises(InputError, match="received 'x'") as told:
        old_run(tmp_path, "toy", "x")
    assert record.run in told.value.remedy


def _hold(logs: Path, ready: multiprocessing.connection.Connection) -> None:
    record = begin(logs)
    ready.send(record.run)
    ready.recv()


def test_a_run_that_still_goes_on_elsewhere_is_not_resumed(tmp_path: Path):
    ours, theirs = multiprocessing.Pipe()
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path, theirs))
    holder.start()
    run = ours.recv()
    with pytest.raises(InputError, match="still going on"):
        old_run(tmp_path, "toy", run)
    ours.send("end")
    holder.join()
    old_run(tmp_path, "toy", run).close()


def test_who_only_looks_does_not_keep_a_run_from_being_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    record = begin(tmp_path)
    record.close()
    looking = os.open(record.folder / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looking))
    old_run(tmp_path, "toy", record.run).close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "logs").write_text("a file in the way")
    with pytest.raises(MachineError, match="cannot be made"):
        begin(tmp_path / "logs")
