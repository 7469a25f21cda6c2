"""A Trainer that dies, by itself or by the kernel's hand: the run says so, and --resume finishes it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from command import OWN_CODE, Ended, Runs, assert_nothing_half, start, wait

pytestmark = pytest.mark.e2e

BEFORE = {"ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "DataGate", "Transform"}


def environment(deed: Path, words: str) -> dict[str, str]:
    deed.write_text(words)
    return {**OWN_CODE, "OWN_CODE_DEED": str(deed)}


def assert_died(own: Runs, ended: Ended, headline: str, pushed: list[str]) -> None:
    told = ended.told
    assert (ended.exit_code, told["state"]) == (1, "failed")
    assert told["error"]["headline"].startswith(headline)
    assert "--resume" in told["error"]["remedy"]
    assert ended.nodes("failed") == {"Trainer"}
    assert ended.nodes("not run") == {"LatestBlessedModel", "Evaluator", "Pusher"}
    log = own.output / "logs" / told["run"] / "Trainer.log"
    assert told["nodes"]["Trainer"]["log"] == str(log)
    # What the others have made is whole: it is taken from the cache, or made in this run.
    assert ended.nodes("cached") | ended.nodes("done") >= BEFORE
    assert_nothing_half(own.output, told["run"], pushed)


def assert_resumes(own: Runs, died: Ended, pushed: list[str], *arguments: str) -> None:
    resumed = own.again("--resume", "latest", *arguments, environment=OWN_CODE)
    assert (resumed.exit_code, resumed.told["state"], resumed.told["verdict"]) == (0, "done", "blessed")
    assert resumed.told["run"] == died.told["run"]
    assert resumed.nodes("done") >= {"Trainer", "Evaluator", "Pusher"}
    # What had ended well has had one attempt, and keeps its figures.
    lines = (own.output / "logs" / died.told["run"] / "attempts.jsonl").read_text().splitlines()
    attempts = Counter(json.loads(line)["node"] for line in lines)
    assert attempts == Counter(resumed.states.keys()) + Counter(["Trainer"])
    assert all(resumed.told["nodes"][node] == died.told["nodes"][node] for node in BEFORE)
    assert own.pushed == [*pushed, resumed.told["pushed_version"]]


def test_a_native_abort(own: Runs, tmp_path: Path):
    before = own.pushed
    another = ("--set", "training.steps=11")
    died = own.again(*another, environment=environment(tmp_path / "deed", "abort"))
    assert_died(own, died, "Trainer was killed by SIGABRT", before)
    # The native stack, or Python's word on it, is in the node's own log and not on the screen.
    assert died.err == ""
    assert_resumes(own, died, before, *another)


def test_a_kill_from_outside(own: Runs, tmp_path: Path):
    before = own.pushed
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    another = ("--set", "training.steps=12")
    running = start(*own.arguments, *another, environment=environment(tmp_path / "deed", f"wait {pipe}"))
    killer = threading.Thread(target=lambda: os.kill(int(pipe.read_text()), signal.SIGKILL), daemon=True)
    killer.start()
    died = wait(running)
    assert_died(own, died, "Trainer was killed by SIGKILL", before)
    assert_resumes(own, died, before, *another)
