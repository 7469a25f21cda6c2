"""A Trainer that dies, by itself or by the kernel's hand: the run says so, and --resume finishes it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from command import OWN_CODE, Ended, Runs, start, wait

pytestmark = pytest.mark.e2e

BEFORE = {"ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "DataGate", "Transform"}


def environment(deed: Path, words: str) -> dict[str, str]:
    deed.write_text(words)
    return {**OWN_CODE, "OWN_CODE_DEED": str(deed)}


def assert_died(own: Runs, ended: Ended, headline: str) -> None:
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
    assert not list((own.output / "artifacts" / "Trainer").glob("model*/*/*"))


def assert_resumes(own: Runs, died: Ended, pushed: list[str], *arguments: str) -> None:
    resumed = own.again("--resume", "latest", *arguments, environment=OWN_CODE)
    assert (resumed.exit_code, resumed.told["state"], resumed.told["verdict"]) == (0, "done", "blessed")
    assert resumed.told["run"] == died.told["run"]
    assert resumed.nodes("done") >= {"Trainer", "Evaluator", "Pusher"}
    for node in BEFORE:
        log = (own.output / "logs" / died.told["run"] / f"{node}.log").read_text()
        assert log.count(f"=== {node}, ") == 1
        assert resumed.told["nodes"][node] == died.told["nodes"][node]
    assert own.pushed == [*pushed, resumed.told["pushed_version"]]


def pushed_so_far(own: Runs) -> list[str]:
    return own.pushed if (own.output / "pushed").exists() else []


def test_a_native_abort(own: Runs, tmp_path: Path):
    before = pushed_so_far(own)
    another = ("--set", "training.steps=11")
    died = own.again(*another, environment=environment(tmp_path / "deed", "abort"))
    assert_died(own, died, "Trainer was killed by SIGABRT")
    # The native stack, or Python's word on it, is in the node's own log and not on the screen.
    assert died.err == ""
    assert_resumes(own, died, before, *another)


def test_a_kill_from_outside(own: Runs, tmp_path: Path):
    before = pushed_so_far(own)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    another = ("--set", "training.steps=12")
    running = start(*own.arguments, *another, environment=environment(tmp_path / "deed", f"wait {pipe}"))
    killer = threading.Thread(target=lambda: os.kill(int(pipe.read_text()), signal.SIGKILL), daemon=True)
    killer.start()
    died = wait(running)
    assert_died(own, died, "Trainer was killed by SIGKILL")
    assert_resumes(own, died, before, *another)
