"""Commands of this project without slow imports, as forks of a process that has imported their common modules.

A command fails if it or the forking process imports a slow module.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
_PRELOADED = (
    "pipeline.cli.main",
    "pipeline.cli.output",
    "pipeline.authoring.config",
    "pipeline.inspection.run_history",
)
_HEAVY = frozenset({"apache_beam", "ml_metadata", "pandas", "tensorflow", "tfx"})


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the command from the root of the repository, with an empty stdin.

    Args:
      arguments: the command line.
      environment: The whole environment of the command; PYTHONPATH is ignored.

    Returns:
      The exit code, stdout and stderr.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch, "out"), Path(scratch, "err")
        request = {"arguments": arguments, "environment": dict(environment), "out": str(out), "err": str(err)}
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    with server:
        server.kill()


def _serve() -> int | str:
    """Serve until the end; return the exit code of the server, or in a fork the exit code of the command."""
    # Replace this file's folder in the search path by the working directory, the root of the repository.
    sys.path[0] = ""
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            return _command(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return 0


def _command(request: dict[str, Any]) -> int | str:
    for number, name in enumerate((os.devnull, request["out"], request["err"])):
        file = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["runner.py", *request["arguments"]]
    code: Any
    try:
        code = importlib.import_module("pipeline.cli.main").main()
    except SystemExit as ended:
        code = ended.code
    heavy = _HEAVY & {name.partition(".")[0] for name in sys.modules}
    return f"imported: {sorted(heavy)}" if heavy else code


if __name__ == "__main__":
    sys.exit(_serve())
