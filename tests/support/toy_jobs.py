"""Runs toy pipelines on the local target without importing TFX here; as a program, in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.targets.local import LocalJob, run
from pipeline.targets.result import RunResult
from pipeline.targets.screen import summary

_SECONDS = 300
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


def compile_in_child(folder: Path, shape: str, value: int, store: str = "") -> bytes:
    """Compiles a toy pipeline where TFX is imported."""
    from toys import compile_toy

    return compile_toy(folder, shape, value, store)


def toy_job(folder: Path, shape: str = "chain", value: int = 1, store: str = "", **options: Any) -> LocalJob:
    """A job for `local.run`."""
    return LocalJob("toy", folder, functools.partial(compile_in_child, folder, shape, value, store), **options)


def run_toy(folder: Path, shape: str = "chain", value: int = 1, store: str = "", **options: Any) -> RunResult:
    """Runs a toy pipeline in this process."""
    return run(toy_job(folder, shape, value, store, **options))


def start_toy(folder: Path, shape: str = "chain", **options: Any) -> subprocess.Popen[str]:
    """Starts one in a process of its own, whose nodes have this environment; it prints its result as JSON."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), shape, json.dumps({"screen": "json", **options})],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )


def result_of_toy(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a toy pipeline that has been started comes to."""
    told: dict[str, Any] = json.loads(process.communicate(timeout=_SECONDS)[0])
    return told


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    folder, shape, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    result = run_toy(folder, shape, **options)
    summary(result, options.get("screen", "plain"))
    sys.exit(result.exit_code)
