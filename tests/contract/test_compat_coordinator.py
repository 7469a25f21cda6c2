"""The private parts of TensorFlow's coordinator in components.compat.coordinator do in the installed version what the
elastic workers need, and a server answers components.compat.grpc's TaskStatus.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import worker_group_program
from tests.support.programs.worker_group_program import STEPS
from tests.support.runs.command import ROOT, SECONDS

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]


def test_workers_join_and_leave_while_the_variables_stay(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, worker_group_program.__file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    report = json.loads(ended.stdout.splitlines()[-1])
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
