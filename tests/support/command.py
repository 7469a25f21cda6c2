"""Types the project's commands as a user does: `python runner.py …` in the project's root, with nothing to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 600
"""No test waits for this: it only keeps a command that hangs from holding up all the others."""

# Says in its exit code whether the command imported what takes seconds. The process server's imports do not count.
_WATCHED = """
import sys
from pipeline.commands import main
try:
    code = main()
except SystemExit as exit:
    code = exit.code
heavy = {"apache_beam", "ml_metadata", "pandas", "tensorflow", "tfx"} & {name.partition(".")[0] for name in sys.modules}
sys.exit(f"imported: {sorted(heavy)}" if heavy else code)
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    exit_code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """The JSON object of `--json`; nothing else may stand on stdout."""
        [line] = self.out.splitlines() or [f"nothing on stdout; stderr: {self.err}"]
        told: dict[str, Any] = json.loads(line)
        return told

    @property
    def states(self) -> dict[str, str]:
        """Node → the state it ended in."""
        return {node: each["state"] for node, each in self.told["nodes"].items()}

    def nodes(self, state: str) -> set[str]:
        """The nodes that ended in a state."""
        return {node for node, ended_in in self.states.items() if ended_in == state}


def command(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """`python runner.py` with these arguments."""
    return _call([sys.executable, "runner.py", *arguments], environment)


def light_command(*arguments: str) -> Ended:
    """The same, for a command that has to end before anything heavy is imported: it fails if something is."""
    return _call([sys.executable, "-c", _WATCHED, *arguments])


def start(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts `python runner.py`, for a test that has something to do while it runs."""
    return subprocess.Popen(
        [sys.executable, "runner.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait(process: subprocess.Popen[str]) -> Ended:
    """Waits for what `start` has started."""
    out, err = process.communicate(timeout=SECONDS)
    return Ended(process.returncode, out, err)


def program(*arguments: str, told: Any = None) -> Any:
    """Runs a support program in a fresh process; both sides speak JSON, one object on stdin and one on stdout."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def _call(line: list[str], environment: Mapping[str, str] | None = None) -> Ended:
    ended = subprocess.run(
        line,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
