"""Tests for the lock that prevents concurrent runs of a scheduled pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.orchestration.local.scheduler import LOCK_FILE, exclusive_run
from tests.support.data import people
from tests.support.runs.command import ROOT, command, light_command

_HOLDS = """
import sys
from pathlib import Path
from pipeline.orchestration.local.scheduler import exclusive_run
with exclusive_run(Path(sys.argv[1]), "people"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_run_is_rejected_until_the_first_ends(tmp_path: Path):
    folder = tmp_path / "out" / "people"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=rf"in process {holder.pid}, and a scheduled pipeline") as error,
            exclusive_run(folder, "x"),
        ):
            raise AssertionError("the lock was held")
        assert "wait for its end" in error.value.remedy
        holder.send_signal(signal.SIGKILL)
    with exclusive_run(folder, "people"):
        assert str(os.getpid()) in (folder / LOCK_FILE).read_text()
        # The file is empty while the process that holds the lock has not written its process ID yet.
        (folder / LOCK_FILE).write_text("")
        with pytest.raises(InputError, match="a run of people is in progress, and"), exclusive_run(folder, "people"):
            raise AssertionError("the lock was held")


@pytest.mark.parametrize("scheduled", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_runs_without_a_schedule_are_not_exclusive(tmp_path: Path, scheduled: bool):
    data = people.write(tmp_path / "people.csv", people.rows())
    schedule = {"schedule": {"start": "2026-01-01"}} if scheduled else {}
    config = people.write_config(tmp_path / "people.yaml", data, **schedule)
    arguments = ("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--to", "StatisticsGen")
    with exclusive_run(tmp_path / "out" / "people", "people"):
        process = (light_command if scheduled else command)(*arguments)
    assert process.exit_code == (2 if scheduled else 0), process.err
    assert ("a run of people is in progress" in process.err) == scheduled
