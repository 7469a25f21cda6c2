"""Nodes as separate processes, as an orchestrator starts them: exit codes, attempts, remains of killed nodes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from pipeline.core.metadata.store import Store
from pipeline.core.records import NodeOutcome
from pipeline.inspection import run_history
from pipeline.orchestration.local import processes
from tests.support.runs.command import ROOT, command, start, wait
from tests.support.runs.toy_runs import compile_in_child
from tests.support.servers.in_fork_server import in_child

CHAIN = ("Source", "Add", "Actor", "Rows")


RUN = "r 1:+"


def run_single(ir: Path, node: str, run: str) -> NodeOutcome:
    """Return a node, where TFX is imported already."""
    from pipeline.cli.reporting import REPORTING
    from pipeline.orchestration.single_node import NodeJob
    from pipeline.orchestration.single_node import run as run_job

    return run_job(NodeJob(ir.read_bytes(), node, run, REPORTING))


class Toy:
    """A compiled toy pipeline in a file."""

    def __init__(self, folder: Path, shape: str = "chain") -> None:
        self.folder = folder
        self.file = folder / "toy.pb"
        ir, _ = in_child(
            folder / "test.log", processes.compile_pipeline, functools.partial(compile_in_child, folder, shape, 1)
        )
        self.file.write_bytes(ir)

    def start(self, node: str) -> subprocess.Popen[str]:
        """Start a node as an orchestrator does."""
        arguments = ["node", "run", "--pipeline", str(self.file), "--node", node, "--run-id", RUN]
        return start(*arguments, environment={"PYTHONPATH": str(ROOT)})

    def run(self, node: str, run: str = RUN) -> NodeOutcome:
        """Run a node, without its imports."""
        outcome = in_child(self.folder / "test.log", run_single, self.file, node, run)
        assert isinstance(outcome, NodeOutcome)
        return outcome

    def record(self, run: str = RUN) -> dict[str, Any]:
        """Return the recorded state of a run."""
        store = Store(self.folder / "metadata.db")
        [recorded_run] = [stored_run for stored_run in store.runs() if stored_run.name == run]
        return run_history.describe_run(store, self.folder / "logs", recorded_run)


def test_pipeline_node_by_node_then_from_the_cache(tmp_path: Path):
    toy = Toy(tmp_path)
    assert [toy.run(node).state for node in CHAIN] == ["done"] * 4
    record = toy.record()
    assert (record["state"], list(record["nodes"])) == ("done", list(CHAIN))
    for node in CHAIN:
        assert record["nodes"][node]["state"] == "done"
        assert record["nodes"][node]["cpu_seconds"] > 0
        assert len(record["nodes"][node]["tries"]) == 1
    assert record["nodes"]["Actor"]["upstream"] == ["Add"]
    assert record["nodes"]["Rows"]["rows"] == 12
    assert "Rows done" in (tmp_path / "logs" / RUN / "report.html").read_text()
    # A repeated node reuses the earlier attempt's outputs; another run takes them from the cache.
    assert toy.run("Rows").earlier
    assert toy.record() == record
    assert [toy.run(node, "r2").state for node in CHAIN] == ["cached"] * 4
    rows = list(run_history.list_runs(Store(tmp_path / "metadata.db"), tmp_path / "logs", "toy"))
    assert [(row.run, row.state) for row in rows] == [("r2", "done"), (RUN, "done")]


@pytest.mark.slow
def test_node_whose_condition_is_false_is_skipped(tmp_path: Path):
    toy = Toy(tmp_path, "condition")
    assert toy.run("Source").state == "done"
    ended = wait(toy.start("Add"))
    assert (ended.exit_code, ended.err.splitlines()[-1]) == (3, "Add: skipped")


@pytest.mark.slow
def test_failure_is_kept_beside_the_attempt_that_mends_it(tmp_path: Path):
    toy = Toy(tmp_path)
    for node in CHAIN[:2]:
        toy.run(node)
    script = tmp_path / "Actor.script"
    for action in ("raise", "input"):
        script.write_text(action)
        assert toy.run("Actor").state == "failed"
    # For an orchestrator, a stop by a gate is an ordinary failure, because it may give exit code 3 another meaning.
    script.write_text("gate")
    failed = wait(toy.start("Actor"))
    assert failed.exit_code == 1
    assert "too many gaps" in failed.err
    assert "remedy: fill them" in failed.err
    # Downstream nodes cannot start.
    assert toy.run("Rows").state == "failed"
    script.unlink()
    assert [toy.run(node).state for node in ("Actor", "Rows")] == ["done", "done"]
    actor = toy.record()["nodes"]["Actor"]
    assert [attempt["state"] for attempt in actor["tries"]] == ["failed"] * 3 + ["done"]
    assert actor["tries"][2]["error"]["headline"] == "too many gaps"
    assert (actor["state"], actor["attempts"], toy.record()["state"]) == ("done", 4, "done")


@pytest.mark.slow
def test_next_attempt_closes_executions_of_a_killed_one(tmp_path: Path):
    toy = Toy(tmp_path)
    for node in CHAIN[:2]:
        toy.run(node)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "Actor.script").write_text(f"wait {pipe}")
    working = toy.start("Actor")
    _, below = pipe.read_text().split()
    # No other process may resume the run meanwhile; other runs are not affected.
    with pytest.raises(InputError, match="still running"):
        toy.run("Actor")
    assert toy.run("Source", "r2").state == "cached"
    working.send_signal(signal.SIGKILL)
    working.wait()
    os.kill(int(below), signal.SIGKILL)
    working.communicate()
    executions = {execution.node: execution.state for execution in Store(tmp_path / "metadata.db").executions(RUN)}
    assert executions["Actor"] == "RUNNING"
    (tmp_path / "Actor.script").unlink()
    assert [toy.run(node).state for node in ("Actor", "Rows")] == ["done", "done"]
    assert toy.record()["state"] == "done"
    assert len(Store(tmp_path / "metadata.db").executions(RUN)) == 4


def test_invalid_arguments_are_rejected(tmp_path: Path):
    toy = Toy(tmp_path)
    with pytest.raises(InputError, match="received 'Trainer'") as raised:
        toy.run("Trainer")
    assert raised.value.remedy == "the nodes are Source, Add, Actor, Rows"
    refused = command("node", "run", "--pipeline", str(toy.file), "--node", "Source", "--run-id", "../up")
    assert (refused.exit_code, "--run-id" in refused.err) == (2, True)
    assert not (tmp_path / "logs").exists()
