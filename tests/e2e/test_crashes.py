"""The Trainer or the whole run crashes or is OOM-killed; --resume finishes it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from pipeline.core.metadata.store import Store
from tests.support.fakes.expected_rpc_errors import assert_undisturbed
from tests.support.runs.command import OWN_CODE, SECONDS, Ended, Runs, assert_nothing_half, start, wait

pytestmark = pytest.mark.e2e

BEFORE = {"ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "DataGate", "Transform"}


def environment(deed: Path, words: str) -> dict[str, str]:
    deed.write_text(words)
    return {**OWN_CODE, "OWN_CODE_DEED": str(deed)}


def assert_died(own: Runs, ended: Ended, headline: str, pushed: list[str]) -> None:
    result = ended.result
    assert (ended.exit_code, result["state"]) == (1, "failed")
    assert result["error"]["headline"].startswith(headline)
    assert "--resume" in result["error"]["remedy"]
    assert ended.nodes("failed") == {"Trainer"}
    assert ended.nodes("not run") == {"LatestBlessedModel", "Evaluator", "Pusher"}
    log = own.output / "logs" / result["run"] / "Trainer.log"
    assert result["nodes"]["Trainer"]["log"] == str(log)
    # The outputs of the other nodes are complete: they come from the cache, or were written in this run.
    assert ended.nodes("cached") | ended.nodes("done") >= BEFORE
    assert_nothing_half(own.output, result["run"], pushed)


def assert_resumes(own: Runs, died: Ended, pushed: list[str], *arguments: str) -> None:
    resumed = own.again("--resume", "latest", *arguments, environment=OWN_CODE)
    assert (resumed.exit_code, resumed.result["state"], resumed.result["verdict"]) == (0, "done", "blessed")
    assert resumed.result["run"] == died.result["run"]
    assert resumed.nodes("done") >= {"Trainer", "Evaluator", "Pusher"}
    # Nodes that had succeeded had one attempt, and keep their figures.
    lines = (own.output / "logs" / died.result["run"] / "attempts.jsonl").read_text().splitlines()
    attempts = Counter(json.loads(line)["node"] for line in lines)
    assert attempts == Counter(resumed.states.keys()) + Counter(["Trainer"])
    assert all(resumed.result["nodes"][node] == died.result["nodes"][node] for node in BEFORE)
    assert own.pushed == [*pushed, resumed.result["pushed_version"]]


@pytest.mark.xdist_group("own")
def test_native_abort(own: Runs, tmp_path: Path):
    before = own.pushed
    another = ("--set", "training.steps=11")
    died = own.again(*another, environment=environment(tmp_path / "deed", "abort"))
    assert_died(own, died, "Trainer was killed by SIGABRT", before)
    # The native or Python stack is in the node's log, not on the terminal.
    assert died.err == ""
    assert_resumes(own, died, before, *another)


@pytest.mark.slow
@pytest.mark.xdist_group("own")
def test_kill_from_outside(own: Runs, tmp_path: Path):
    before = own.pushed
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    another = ("--set", "training.steps=12")
    killer = threading.Thread(target=lambda: os.kill(int(pipe.read_text()), signal.SIGKILL), daemon=True)
    killer.start()
    died = own.again(*another, environment=environment(tmp_path / "deed", f"wait {pipe}"))
    assert_died(own, died, "Trainer was killed by SIGKILL", before)
    assert_resumes(own, died, before, *another)


EVERY = 50
"""Steps between two checkpoints, and between two lines of a task's log."""


def newest_checkpoint_step(output: Path) -> int:
    """Return the step of the newest complete checkpoint of a running training, or 0."""
    trainings = output / "artifacts" / "Trainer" / ".system" / "stateful_working_dir"
    steps = [int(path.stem.rpartition("-")[2]) for path in trainings.glob("*/checkpoints/*/step-*.index")]
    return max(steps, default=0)


def kill_after(step: int, output: Path, running: subprocess.Popen[str]) -> int:
    """Kill a run's process once this step is saved, check that its children end, and return the last saved step."""
    deadline = time.monotonic() + SECONDS
    while newest_checkpoint_step(output) < step:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    family = psutil.Process(running.pid).children(recursive=True)
    # The server that nodes are forked from, the Trainer, and its two workers.
    assert len(family) >= 4
    running.kill()
    assert wait(running).exit_code == -signal.SIGKILL
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    return newest_checkpoint_step(output)


def attempts(log: Path) -> list[list[int]]:
    """Return the logged steps per attempt of a task."""
    _, *texts = log.read_text().split(f"=== {log.stem}, process ")
    return [[int(step) for step in re.findall(r"step (\d+): loss", text)] for text in texts]


@pytest.mark.slow
@pytest.mark.xdist_group("small")
def test_killed_run_resumes_from_its_checkpoint_with_another_strategy(small: Runs):
    before, steps = small.pushed, 800
    fields = (
        f"training.steps={steps}",
        f"training.checkpoint.every_steps={EVERY}",
        "training.strategy.kind=multi_worker",
        "evaluation.slices=[]",
    )
    chosen = [word for field in fields for word in ("--set", field)]
    served = ("--set", "training.strategy.kind=parameter_server", "--set", "training.strategy.ps=3")
    first = kill_after(2 * EVERY, small.output, start(*small.arguments, *chosen))
    [run, *_] = Store(small.output / "metadata.db").runs("people")
    again = start(*small.arguments, "--resume", "latest", *chosen)
    second = kill_after(first + EVERY, small.output, again)
    assert second < steps, "it was killed too late to tell anything"

    resumed = small.again("--resume", "latest", *chosen, *served)
    assert resumed.exit_code == 0, resumed.out or resumed.err
    result = resumed.result
    assert (result["run"], result["state"], result["verdict"]) == (run.name, "done", "blessed")
    assert small.pushed == [*before, result["pushed_version"]]

    model = Path(result["model"])
    logs = model.parents[1] / "model_run" / model.name / "logs"
    assert_undisturbed(result["training"], steps, logs)
    in_step, beside_servers = attempts(logs / "worker-0.log"), attempts(logs / "chief-0.log")
    assert [attempt[0] for attempt in in_step[:2]] == [EVERY, first + EVERY]
    assert beside_servers == [list(range(second + EVERY, steps + 1, EVERY))]
    assert (logs / "ps-2.log").is_file()
