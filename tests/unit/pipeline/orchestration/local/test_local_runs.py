"""Whole toy runs on the local target: states, cache, side by side, logs, figures, partial runs."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
from in_fork_server import in_child, result_of
from toy_runs import compile_in_child, run_toy

from pipeline.core.metadata.store import Store
from pipeline.core.records import RunResult
from pipeline.orchestration.local import processes
from pipeline.orchestration.local.processes import ChildProcess, start_server


def states(result: RunResult) -> dict[str, str]:
    return {node.id: node.state for node in result.nodes}


def test_run_is_done_then_all_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = run_toy(tmp_path)
    assert (first.state, first.exit_code, first.error) == ("done", 0, None)
    assert states(first) == dict.fromkeys(["Source", "Add", "Actor", "Rows"], "done")
    assert (first.summary.rows_read, first.summary.rows) == (12, {"train": 8, "eval": 4})
    assert first.nodes[3].rows == 12
    assert all(node.seconds > 0 and node.cpu_seconds > 0 and node.peak_memory_mb > 50 for node in first.nodes)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Source: running"
    assert lines[2].startswith("Source: done in ")

    second = run_toy(tmp_path)
    assert states(second) == dict.fromkeys(["Source", "Add", "Actor", "Rows"], "cached")
    assert second.summary.rows == first.summary.rows
    assert second.run > first.run
    record = json.loads((tmp_path / "logs" / second.run / "run.json").read_text())
    assert (record["state"], record["nodes"]["Rows"]["state"]) == ("done", "cached")


def test_cached_nodes_share_a_process_and_a_node_that_runs_has_its_own(tmp_path: Path):
    first, second = run_toy(tmp_path), run_toy(tmp_path)
    pids = [process_of(tmp_path / "logs" / first.run / f"{node.id}.log") for node in first.nodes]
    assert len(set(pids)) == 4
    shared = [process_of(tmp_path / "logs" / second.run / f"{node.id}.log") for node in second.nodes]
    assert len(set(shared)) == 1
    assert not psutil.pid_exists(shared[0])
    # The figures are those of each node alone.
    assert all(0 < node.cpu_seconds < 0.6 * sum(each.cpu_seconds for each in second.nodes) for node in second.nodes)


def test_process_that_was_killed_is_not_continued(tmp_path: Path):
    start_server()
    ir = compile_for(tmp_path, 0)
    assert in_child(tmp_path / "test.log", processes.run_node, ir, "Source", folder_of(tmp_path, "r1")).state == "done"
    cached = ChildProcess(
        "Source", tmp_path / "cached.log", processes.run_node, ir, "Source", folder_of(tmp_path, "r2")
    )
    assert result_of(cached).state == "cached"
    process = psutil.Process(process_of(tmp_path / "cached.log"))
    cached.signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=30)
    after = ChildProcess(
        "Add0", tmp_path / "after.log", processes.run_node, ir, "Add0", tmp_path / "logs" / "r2", earlier=cached
    )
    assert result_of(after).state == "done"
    assert process_of(tmp_path / "after.log") != process_of(tmp_path / "cached.log")


def process_of(log: Path) -> int:
    """Return the id of the process that wrote a log."""
    return int(log.read_text().partition(" ===")[0].rpartition(" ")[2])


def test_process_that_user_code_leaves_in_another_session_ends_with_the_node(tmp_path: Path) -> None:
    number = tmp_path / "daemon"
    (tmp_path / "Actor.script").write_text(f"daemon {number}")
    result = run_toy(tmp_path)
    assert result.state == "done"
    assert not psutil.pid_exists(int(number.read_text()))


def test_run_writes_its_report_and_names_it_last(tmp_path: Path):
    result = run_toy(tmp_path)
    assert result.report == tmp_path / "logs" / result.run / "report.html"
    page = result.report.read_text()
    assert "Source done; Add done; Actor done; Rows done" in page
    assert json.loads((result.report.parent / "run.json").read_text())["nodes"]["Add"]["upstream"] == ["Source"]


def test_report_that_cannot_be_written_costs_nothing_but_itself(tmp_path: Path):
    first = run_toy(tmp_path)
    assert first.report is not None
    first.report.unlink()
    (first.report / "in the way").mkdir(parents=True)
    again = run_toy(tmp_path, resume=first.run)
    assert (again.state, again.exit_code, again.error, again.report) == ("done", 0, None, None)
    assert "report.html cannot be written" in (first.report.parent / "pipeline.log").read_text()


def test_nodes_that_do_not_depend_on_each_other_run_side_by_side(tmp_path: Path):
    # Each waits in its own pipe until both have started.
    pipes = {name: tmp_path / f"{name}.pipe" for name in ("Left", "Right")}
    for name, pipe in pipes.items():
        os.mkfifo(pipe)
        (tmp_path / f"{name}.script").write_text(f"meet {pipe}")
    met: list[str] = []

    def meet() -> None:
        opened = [pipe.open("w") for pipe in pipes.values()]
        met.extend(pipes)
        for pipe in opened:
            pipe.close()

    meeting = threading.Thread(target=meet, daemon=True)
    meeting.start()
    result = run_toy(tmp_path, "pair", parallel=2)
    meeting.join(timeout=10)
    assert result.state == "done"
    assert met == ["Left", "Right"]


def test_all_that_a_node_prints_is_in_its_own_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "Actor.script").write_text("talk")
    result = run_toy(tmp_path, screen="json")
    assert result.state == "done"
    log = (tmp_path / "logs" / result.run / "Actor.log").read_text()
    assert log.startswith("=== Actor, ")
    for printed in ("\nout\n", "UserWarning: careful", "\nnative\n", "I absl: "):
        assert printed in log
    assert len(log) > 4 << 20
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.extended
def test_figures_are_of_the_whole_process_tree(tmp_path: Path):
    (tmp_path / "Actor.script").write_text("burn")
    result = run_toy(tmp_path)
    actor, add = result.nodes[2], result.nodes[1]
    assert actor.cpu_seconds >= 1.0
    assert actor.peak_memory_mb > add.peak_memory_mb + 150


def test_run_from_and_to_a_node(tmp_path: Path):
    none = run_toy(tmp_path, from_nodes=("Actor",))
    assert (none.state, none.exit_code) == ("failed", 2)
    assert none.error is not None
    assert "no earlier run has outputs of Source, Add" in none.error.headline

    part = run_toy(tmp_path, to_nodes=("Add",))
    assert states(part) == {"Source": "done", "Add": "done", "Actor": "skipped", "Rows": "skipped"}
    rest = run_toy(tmp_path, from_nodes=("Actor",))
    assert rest.state == "done"
    assert states(rest) == {"Source": "cached", "Add": "cached", "Actor": "done", "Rows": "done"}


def test_pipeline_that_does_not_compile_is_reported(tmp_path: Path):
    result = run_toy(tmp_path, "broken")
    assert (result.state, result.exit_code, result.nodes) == ("failed", 1, ())
    assert result.error is not None
    assert result.error.headline == "compile failed: KeyError: 'broken'"
    assert "Traceback" in (tmp_path / "logs" / result.run / "pipeline.log").read_text()


def test_unknown_run_is_not_resumed(tmp_path: Path):
    result = run_toy(tmp_path, resume="20200101T000000-0000")
    assert (result.state, result.exit_code) == ("failed", 2)


@pytest.mark.extended
def test_many_writers_at_once_do_not_disturb_each_other(tmp_path: Path):
    start_server()
    log = tmp_path / "test.log"
    irs = {f"r{value}": compile_for(tmp_path, value) for value in range(2)}
    for run, ir in irs.items():
        assert in_child(log, processes.run_node, ir, "Source", folder_of(tmp_path, run)).state == "done"
    tasks = [
        ChildProcess(f"{run} Add{n}", log, processes.run_node, ir, f"Add{n}", tmp_path / "logs" / run)
        for run, ir in irs.items()
        for n in range(8)
    ]
    assert Counter(result_of(task).state for task in tasks) == {"done": 16}
    store = Store(tmp_path / "metadata.db")
    for run in irs:
        assert Counter(execution.state for execution in store.executions(run)) == {"COMPLETE": 9}
        assert len({artifact.uri for artifact in store.artifacts(run, "Integer")}) == 9


def folder_of(output: Path, run: str) -> Path:
    folder = output / "logs" / run
    folder.mkdir(parents=True)
    return folder


def compile_for(folder: Path, value: int) -> bytes:
    ir, _ = in_child(
        folder / "test.log", processes.compile_pipeline, functools.partial(compile_in_child, folder, "fan", value)
    )
    return bytes(ir)
