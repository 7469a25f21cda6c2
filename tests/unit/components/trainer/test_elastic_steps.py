"""Tests that an epoch has every row once, with any number of workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import elastic_steps_program
from tests.support.runs.command import ROOT, SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["memory", "none"])
def test_every_epoch_reads_every_row_once(tmp_path: Path, cache: str) -> None:
    process = subprocess.run(
        [sys.executable, elastic_steps_program.__file__, cache],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    epochs = json.loads(process.stdout.splitlines()[-1])
    # Each entry holds the mean loss, the workers, and how often the rows have been read so far.
    assert epochs == [[1.0, [0, 2], [1]], [1.0, [0, 1, 2], [2]], [1.0, [1, 2], [3]]]
