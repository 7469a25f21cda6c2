"""Tests for commands whose standard output is closed or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCHEMA = (sys.executable, "runner.py", "schema")


def test_full_output_is_a_single_error() -> None:
    for unbuffered in ("", "1"):
        with Path("/dev/full").open("w") as full_device:
            environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            ended = subprocess.run(
                SCHEMA, cwd=ROOT, stdout=full_device, stderr=subprocess.PIPE, text=True, env=environment
            )
        assert ended.returncode == 1
        assert ended.stderr.startswith(
            "error: standard output: expected a stream that can be written, received: No space left on device\n"
        )
        assert "Traceback" not in ended.stderr
        assert "Exception ignored" not in ended.stderr


def test_closed_output_is_ignored() -> None:
    ended = subprocess.run(("sh", "-c", 'exec "$@" >&-', "sh", *SCHEMA), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
