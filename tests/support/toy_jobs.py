"""Runs toy pipelines on the local target without importing TFX here; as a program, in a process of its own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from pipeline.targets.local import LocalJob, run
from pipeline.targets.result import RunResult
from pipeline.targets.screen import summary


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


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    folder, shape, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    result = run_toy(folder, shape, **options)
    summary(result, options.get("screen", "plain"))
    sys.exit(result.exit_code)
