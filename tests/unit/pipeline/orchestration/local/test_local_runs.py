"""Tests that run a toy pipeline on this machine: states, cache, parallel nodes, logs, figures and partial runs."""

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

from pipeline.core.metadata.store import Store
from pipeline.core.records import RunResult
from pipeline.orchestration.local import processes, scheduler
from pipeline.orchestration.local.processes import NodeProcess, start_server
from tests.support.runs.toy_runs import compile_in_child, run_toy
from tests.support.servers.in_fork_server import in_child, result_of


def get_states(result: RunResult) -> dict[str, str]:
    return {node.id: node.state for node in result.nodes}


def test_second_run_is_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = run_toy(tmp_path)
    assert (first.state, first.exit_code, first.error) == ("done", 0, None)
    assert get_states(first) == dict.fromkeys(["Source", "Add", "Actor", "Rows"], "done")
    assert (first.summary.rows_read, first.summary.rows) == (12, {"train": 8, "eval": 4})
    assert first.nodes[3].rows == 12
    assert all(node.seconds > 0 and node.cpu_seconds > 0 and node.peak_memory_mb > 50 for node in first.nodes)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Source: running"
    assert lines[2].startswith("Source: done in ")

    second = run_toy(tmp_path)
    assert get_states(second) == dict.fromkeys(["Source", "Add", "Actor", "Rows"], "cached")
    assert second.summary.rows == first.summary.rows
    assert second.run > first.run
    record = json.loads((tmp_path / "logs" / second.run / "run.json").read_text())
    assert (record["state"], record["nodes"]["Rows"]["state"]) == ("done", "cached")


def test_cached_nodes_share_a_process_and_other_nodes_do_not(tmp_path: Path):
    first, second = run_toy(tmp_path), run_toy(tmp_path)
    pids = [read_process_id(tmp_path / "logs" / first.run / f"{node.id}.log") for node in first.nodes]
    assert len(set(pids)) == 4
    shared = [read_process_id(tmp_path / "logs" / second.run / f"{node.id}.log") for node in second.nodes]
    assert len(set(shared)) == 1
    assert not psutil.pid_exists(shared[0])
    # The figures cover a single node, although all nodes share the process.
    assert all(
        0 < node.cpu_seconds < 0.6 * sum(cached_node.cpu_seconds for cached_node in second.nodes)
        for node in second.nodes
    )


def test_killed_process_is_not_reused(tmp_path: Path):
    start_server()
    ir = compile_for(tmp_path, 0)
    assert (
        in_child(tmp_path / "test.log", processes.run_node, ir, "Source", make_run_folder(tmp_path, "r1")).state
        == "done"
    )
    cached = NodeProcess(
        "Source", tmp_path / "cached.log", processes.run_node, ir, "Source", make_run_folder(tmp_path, "r2")
    )
    assert result_of(cached).state == "cached"
    process = psutil.Process(read_process_id(tmp_path / "cached.log"))
    cached.signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=30)
    after = NodeProcess(
        "Add0", tmp_path / "after.log", processes.run_node, ir, "Add0", tmp_path / "logs" / "r2", earlier=cached
    )
    assert result_of(after).state == "done"
    assert read_process_id(tmp_path / "after.log") != read_process_id(tmp_path / "cached.log")


def read_process_id(log: Path) -> int:
    """Return the ID of the process that wrote a log."""
    return int(log.read_text().partition(" ===")[0].rpartition(" ")[2])


def test_daemon_that_user_code_starts_ends_with_the_node(tmp_path: Path) -> None:
    number = tmp_path / "daemon"
    (tmp_path / "Actor.script").write_text(f"daemon {number}")
    result = run_toy(tmp_path)
    assert result.state == "done"
    assert not psutil.pid_exists(int(number.read_text()))


def test_run_writes_its_report(tmp_path: Path):
    result = run_toy(tmp_path)
    assert result.report == tmp_path / "logs" / result.run / "report.html"
    page = result.report.read_text()
    assert "Source done; Add done; Actor done; Rows done" in page
    assert json.loads((result.report.parent / "run.json").read_text())["nodes"]["Add"]["upstream"] == ["Source"]


@pytest.mark.extended
def test_run_succeeds_if_its_report_cannot_be_written(tmp_path: Path):
    first = run_toy(tmp_path)
    assert first.report is not None
    first.report.unlink()
    (first.report / "in the way").mkdir(parents=True)
    resumed = run_toy(tmp_path, resume=first.run)
    assert (resumed.state, resumed.exit_code, resumed.error, resumed.report) == ("done", 0, None, None)
    assert "report.html cannot be written" in (first.report.parent / "pipeline.log").read_text()


def test_finished_nodes_keep_their_figures_in_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_toy(tmp_path)
    # Sample each process often, as on a slow machine.
    monkeypatch.setattr(scheduler, "_TICK_SECONDS", 0.001)
    resumed = run_toy(tmp_path, resume=first.run)
    figures, kept = ({node.id: node.to_json() for node in result.nodes} for result in (first, resumed))
    assert kept == figures


def test_independent_nodes_run_in_parallel(tmp_path: Path):
    # A node waits at its pipe until the test opens it. The test can open both pipes only if both nodes are running.
    pipes = {name: tmp_path / f"{name}.pipe" for name in ("Left", "Right")}
    for name, pipe in pipes.items():
        os.mkfifo(pipe)
        (tmp_path / f"{name}.script").write_text(f"meet {pipe}")
    opened_names: list[str] = []

    def open_pipes() -> None:
        opened = [pipe.open("w") for pipe in pipes.values()]
        opened_names.extend(pipes)
        for pipe in opened:
            pipe.close()

    meeting = threading.Thread(target=open_pipes, daemon=True)
    meeting.start()
    result = run_toy(tmp_path, "pair", parallel=2)
    meeting.join(timeout=10)
    assert result.state == "done"
    assert opened_names == ["Left", "Right"]


def test_output_of_a_node_goes_to_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
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
def test_figures_cover_the_whole_process_tree(tmp_path: Path):
    (tmp_path / "Actor.script").write_text("burn")
    result = run_toy(tmp_path)
    actor, add = result.nodes[2], result.nodes[1]
    assert actor.cpu_seconds >= 1.0
    assert actor.peak_memory_mb > add.peak_memory_mb + 150


@pytest.mark.extended
def test_run_can_start_and_end_at_a_node(tmp_path: Path):
    failed = run_toy(tmp_path, from_nodes=("Actor",))
    assert (failed.state, failed.exit_code) == ("failed", 2)
    assert failed.error is not None
    assert "no earlier run has outputs of Source, Add" in failed.error.headline

    first_part = run_toy(tmp_path, to_nodes=("Add",))
    assert get_states(first_part) == {"Source": "done", "Add": "done", "Actor": "skipped", "Rows": "skipped"}
    second_part = run_toy(tmp_path, from_nodes=("Actor",))
    assert second_part.state == "done"
    assert get_states(second_part) == {"Source": "cached", "Add": "cached", "Actor": "done", "Rows": "done"}


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
def test_nodes_can_write_to_the_store_concurrently(tmp_path: Path):
    start_server()
    log = tmp_path / "test.log"
    irs = {f"r{value}": compile_for(tmp_path, value) for value in range(2)}
    for run, ir in irs.items():
        assert in_child(log, processes.run_node, ir, "Source", make_run_folder(tmp_path, run)).state == "done"
    tasks = [
        NodeProcess(f"{run} Add{n}", log, processes.run_node, ir, f"Add{n}", tmp_path / "logs" / run)
        for run, ir in irs.items()
        for n in range(8)
    ]
    assert Counter(result_of(task).state for task in tasks) == {"done": 16}
    store = Store(tmp_path / "metadata.db")
    for run in irs:
        assert Counter(execution.state for execution in store.executions(run)) == {"COMPLETE": 9}
        assert len({artifact.uri for artifact in store.artifacts(run, "Integer")}) == 9


def make_run_folder(output: Path, run: str) -> Path:
    folder = output / "logs" / run
    folder.mkdir(parents=True)
    return folder


def compile_for(folder: Path, value: int) -> bytes:
    ir, _ = in_child(
        folder / "test.log", processes.compile_pipeline, functools.partial(compile_in_child, folder, "fan", value)
    )
    return bytes(ir)
