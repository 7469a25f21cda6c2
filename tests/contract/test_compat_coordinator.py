"""The private parts of TensorFlow's coordinator in components.compat.coordinator do in the installed version what the
elastic workers need, and a server answers components.compat.grpc's TaskStatus and closes contexts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import stale_context, worker_group_program
from tests.support.programs.worker_group_program import STEPS
from tests.support.runs.command import ROOT, SECONDS

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]


def test_workers_join_and_leave_while_the_variables_stay(tmp_path: Path) -> None:
    report = run_program(tmp_path, worker_group_program.__file__)
    # Steps that a killed worker had started are counted twice.
    assert report.pop("steps") >= 5 * STEPS
    assert report == {
        "two of three": [0, 2],
        "after one has joined": [0, 1, 2],
        "while two are lost": [1],
        "one of three": [1],
        "done without a worker": False,
        "after the last was replaced": [2],
        "frozen": False,
    }


@pytest.mark.parametrize("closes", [True, False])
def test_ps_reuses_the_memory_of_a_lost_client_if_its_context_is_closed(tmp_path: Path, closes: bool) -> None:
    first, *later = run_program(tmp_path, stale_context.__file__, "close" if closes else "leave")
    for number, size in enumerate(later, 1):
        kept = 0 if closes else number * stale_context.MIB
        assert abs(size - first - kept) < stale_context.MIB / 4


def run_program(folder: Path, *arguments: str) -> Any:
    """Run a program in a new process; return what it prints as JSON."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])
