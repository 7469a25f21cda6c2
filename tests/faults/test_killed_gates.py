"""A gate or one of its child processes is killed: this does not count as a verdict, and the next attempt gives one."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import psutil
import pytest

from pipeline.cli import main
from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import ROOT, SECONDS, Ended, Runs, command, first_run
from tests.support.servers.forked_command import ForkedCommand

pytestmark = pytest.mark.e2e

_STATISTICS = "StatisticsGen/statistics/*/Split-eval/FeatureStats.pb"
_MODEL = "Trainer/model/*/Format-Serving/saved_model.pb"
GATES = {
    "DataGate": (_STATISTICS, "validation.min_rows=2"),
    "Evaluator": (_MODEL, "evaluation.thresholds={auc: {min: 0.71}}"),
    "InfraValidator": (_MODEL, "serving.max_p99_ms=59000"),
    "EdgeExporter": (_MODEL, "edge=[{max_kilobytes: 990}]"),
}
"""Gate → a file that it reads, and a change of the config that only it depends on."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a complete run. A test changes a bound of one gate; the nodes before it are reused."""
    folder = tmp_path_factory.mktemp("gates")
    config = people.project(folder, serving={"check": "server"})
    runs = first_run(folder, "people", "--config", str(config))
    assert (runs.first.exit_code, runs.first.result["verdict"]) == (0, "blessed"), runs.first.err
    return runs


def block_reader(file: Path, run: ForkedCommand, runs: Runs, node: str) -> psutil.Process:
    """Replace a file by a pipe until the process of a node, or a child of it, opens the pipe; return the process.

    The reader stays blocked, because no process opens the pipe for writing. Later readers get the file as it was.
    """
    moved = file.rename(file.with_name("moved"))
    os.mkfifo(file)
    try:
        while True:
            process = process_of(runs, node)
            with contextlib.suppress(psutil.NoSuchProcess):
                if process and any(map(_is_opening_pipe, [process, *process.children(recursive=True)])):
                    return process
            assert not run.has_ended(0.01), run.wait(0)
    finally:
        moved.replace(file)


def _is_opening_pipe(process: psutil.Process) -> bool:
    """Return whether a thread waits in the kernel for the other end of a pipe."""
    waits = (thread / "wchan" for thread in Path(f"/proc/{process.pid}/task").glob("*"))
    with contextlib.suppress(OSError):
        return any(wait.read_text() == "wait_for_partner" for wait in waits)
    return False


def start_run(runs: Runs, *arguments: str) -> ForkedCommand:
    return ForkedCommand(main, [*runs.arguments, *arguments], ROOT, os.environ)


def process_of(runs: Runs, node: str) -> psutil.Process | None:
    """Return the process of a node in the newest run, or None if it is not running."""
    folder = max((runs.output / "logs").iterdir(), key=lambda path: path.name)
    log = folder / f"{node}.log"
    begun = re.findall(rf"^=== {node}, .*, process (\d+) ===$", log.read_text() if log.exists() else "", re.MULTILINE)
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(int(begun[-1])) if begun else None
    return None


def descendants(process: psutil.Process, generation: int) -> list[psutil.Process]:
    """Return the living children, 1, or grandchildren, 2."""
    processes = [process]
    for _ in range(generation):
        processes = [child for process in processes for child in process.children()]
    return [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]


def with_killed_children(runs: Runs, node: str, times: int, *arguments: str, generation: int = 1) -> Ended:
    """Run the pipeline and kill this number of a node's child processes; return the run."""
    run, killed = start_run(runs, *arguments), set[int]()
    while not run.has_ended(0.01):
        parent = process_of(runs, node)
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in descendants(parent, generation) if parent else ():
                if len(killed) < times and child.pid not in killed:
                    child.kill()
                    killed.add(child.pid)
    assert len(killed) == times
    return Ended(*run.wait(SECONDS))


def assert_failed(runs: Runs, ended: Ended, node: str, headline: str) -> None:
    """Check that the run failed, and that it neither prints, records nor writes a verdict of the node."""
    result = ended.result
    assert (ended.exit_code, result["state"], ended.nodes("failed")) == (1, "failed", {node}), ended.err
    assert headline in result["error"]["headline"]
    executions = Store(runs.output / "metadata.db").executions(result["run"])
    assert not [execution for execution in executions if execution.node == node and execution.succeeded]
    listed = command("runs", *runs.config, *runs.arguments[-2:], "--json").out.splitlines()
    [entry] = [listed_run for listed_run in map(json.loads, listed) if listed_run["run"] == result["run"]]
    assert (entry["state"], entry["version"]) == ("failed", None)
    # The Evaluator may have ended before the serving check.
    assert node == "InfraValidator" or result["verdict"] == ("blessed" if node == "EdgeExporter" else "not evaluated")
    assert entry["verdict"] == (None if result["verdict"] == "not evaluated" else "blessed")
    assert node != "InfraValidator" or result["serving"] is None
    assert node != "EdgeExporter" or "EdgeExporter" not in result["results"]
    report = Path(result["report"]).read_text()
    assert headline in report
    assert not re.search("not blessed|refuses|is not pushed", report)


def assert_as_first(runs: Runs, ended: Ended, node: str) -> None:
    """Check that the node ran, with the verdicts of the first run."""
    first = runs.first.result
    assert (ended.exit_code, ended.states[node]) == (0, "done"), ended.err
    assert all(ended.result[name] == first[name] for name in ("verdict", "metrics"))
    if node == "InfraValidator":
        assert (ended.result["serving"]["passed"], ended.result["serving"]["why"]) == (True, None)
    if node == "EdgeExporter":
        assert [
            (variant["name"], variant["why"]) for variant in ended.result["results"]["EdgeExporter"]["variants"]
        ] == [("tflite_none", [])]


@pytest.mark.parametrize(
    "node", [pytest.param(node, marks=[pytest.mark.slow] * (node != "Evaluator")) for node in GATES]
)
def test_gate_that_is_killed_has_no_verdict_and_is_resumed(runs: Runs, node: str) -> None:
    pattern, field = GATES[node]
    [file] = (runs.output / "artifacts").glob(pattern)
    run = start_run(runs, "--set", field)
    block_reader(file, run, runs, node).kill()
    assert_failed(runs, Ended(*run.wait(SECONDS)), node, f"{node} was killed by SIGKILL")
    assert_as_first(runs, runs.again("--resume", "latest", "--set", field), node)


@pytest.mark.slow
def test_run_passes_if_its_model_server_is_killed_once_and_fails_if_twice(runs: Runs) -> None:
    node, field = "InfraValidator", ("--set", "serving.max_p99_ms=58000")
    failed = with_killed_children(runs, node, 2, *field)
    assert_failed(runs, failed, node, "the serving check could not finish: the server was killed by SIGKILL")
    assert "2 times in a row" in failed.result["error"]["headline"]
    # The result is not cached: the same command checks the model.
    ended = with_killed_children(runs, node, 1, *field)
    assert_as_first(runs, ended, node)
    log = Path(ended.result["nodes"][node]["log"]).read_text()
    assert "the server was killed by SIGKILL before it listened; it is started once more" in log


@pytest.mark.slow
def test_run_passes_if_its_converter_is_killed_once_and_fails_if_twice(runs: Runs) -> None:
    node, field = "EdgeExporter", ("--set", "edge=[{max_kilobytes: 980}]")
    failed = with_killed_children(runs, node, 2, *field)
    assert_failed(runs, failed, node, "the converter of tflite_none was killed by SIGKILL, 2 times in a row")
    assert_as_first(runs, with_killed_children(runs, node, 1, "--resume", "latest", *field), node)


@pytest.mark.slow
def test_run_passes_if_the_check_of_the_export_is_killed_once_and_fails_if_twice(runs: Runs) -> None:
    # Change a field that does not affect the result: the number of steps equals the first run's.
    field = ("--set", "training.checkpoint.every_steps=150")
    failed = with_killed_children(runs, "Trainer", 2, *field)
    assert (failed.exit_code, failed.nodes("failed")) == (1, {"Trainer"})
    headline = "the process that checks the exported model was killed by SIGKILL, 2 times in a row"
    assert failed.result["error"]["headline"] == headline
    assert_as_first(runs, with_killed_children(runs, "Trainer", 1, "--resume", "latest", *field), "Trainer")


@pytest.mark.slow
def test_beam_worker_of_the_evaluator_that_is_killed_fails_the_node(runs: Runs) -> None:
    processes = "runtime.direct={mode: multi_processing, workers: 2}"
    field = ("--set", processes, "--set", "evaluation.thresholds={auc: {min: 0.72}}")
    failed = with_killed_children(runs, "Evaluator", 1, *field, generation=2)
    headline = "Evaluator ended without a result, exit code 1: a worker of Beam was killed by SIGKILL; out of memory?"
    assert_failed(runs, failed, "Evaluator", headline)
    assert_as_first(runs, runs.again("--resume", "latest", *field), "Evaluator")
