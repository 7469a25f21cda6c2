"""Whose turn it is among the runs of a scheduled pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import people
import pytest
from command import ROOT, light_command

from components.errors import InputError
from pipeline.targets.turn import FILE, alone

_HOLDS = """
import sys
from pathlib import Path
from pipeline.targets.turn import alone
with alone(Path(sys.argv[1]), "people"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_goes_on_until_that_one_ends(tmp_path: Path):
    folder = tmp_path / "out" / "people"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=rf"in process {holder.pid}, and with a schedule") as told,
            alone(folder, "x"),
        ):
            raise AssertionError("it had been held")
        assert "wait for its end" in told.value.remedy
        holder.send_signal(signal.SIGKILL)
    with alone(folder, "people"):
        assert str(os.getpid()) in (folder / FILE).read_text()
        # Nobody's word yet: whose it is goes unsaid.
        (folder / FILE).write_text("")
        with pytest.raises(InputError, match="a run of people goes on already, and"), alone(folder, "people"):
            raise AssertionError("it had been held")


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_run_waits_for_nobody_without_a_schedule(tmp_path: Path, scheduled: bool):
    data = people.write(tmp_path / "people.csv", people.rows())
    schedule = {"schedule": {"start": "2026-01-01"}} if scheduled else {}
    config = people.write_config(tmp_path / "people.yaml", data, **schedule)
    arguments = ("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--to", "StatisticsGen")
    with alone(tmp_path / "out" / "people", "people"):
        ended = light_command(*arguments)
    assert ended.exit_code == (2 if scheduled else 0), ended.err
    assert ("a run of people goes on already" in ended.err) == scheduled
