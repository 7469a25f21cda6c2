"""Runs the project's commands as a user types them: `python runner.py …` in the project's root, with an empty stdin.

Most commands are forks of the preloaded node server (`forked_command`), or of a process without anything heavy
(`light_forks`): the same code with the same arguments, without seconds of imports. `command_process`, `light_process`
and `start` start a real process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cli import main
from pipeline.core.metadata.store import Store
from tests.support.servers import light_forks
from tests.support.servers.forked_command import ForkedCommand

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
OWN_CODE = {"PYTHONPATH": str(SUPPORT / "data")}
"""Environment in which `own_code` can be imported, as a user's package can."""
SECONDS = int(os.environ.get("TEST_SECONDS", "590"))
"""Maximum duration of a command that hangs. Soon afterwards pytest ends the test, which would hide what was written."""

# The exit code says whether the command imported a slow module. Imports of the process server do not count.
_WATCHED = """
import sys
from pipeline.cli import main
try:
    code = main()
except SystemExit as exit:
    code = exit.code
heavy = {"apache_beam", "ml_metadata", "pandas", "tensorflow", "tfx"} & {name.partition(".")[0] for name in sys.modules}
sys.exit(f"imported: {sorted(heavy)}" if heavy else code)
"""


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    exit_code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object of `--json`; nothing else may stand on stdout."""
        [line] = self.out.splitlines() or [f"nothing on stdout; stderr: {self.err}"]
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    @property
    def states(self) -> dict[str, str]:
        """The final state of every node, by its name."""
        return {node: entry["state"] for node, entry in self.result["nodes"].items()}

    def nodes(self, state: str) -> set[str]:
        """Return the nodes that ended in a state."""
        return {node for node, ended_in in self.states.items() if ended_in == state}


def command(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run `runner.py` with these arguments in a fork of the preloaded node server."""
    variables = {**os.environ, **(environment or {})}
    return Ended(*ForkedCommand(main, arguments, ROOT, variables).wait(SECONDS))


def command_process(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run `python runner.py` with these arguments in a new process that imports everything itself."""
    return call([sys.executable, "runner.py", *arguments], environment)


def light_process(*arguments: str) -> Ended:
    """Run `python runner.py` in a new process that fails if the command imports a slow module."""
    return call([sys.executable, "-c", _WATCHED, *arguments])


def light_command(*arguments: str) -> Ended:
    """Run `runner.py` like `light_process`, in a fork of a process without slow imports."""
    return Ended(*light_forks.run(arguments, os.environ))


def call(line: Sequence[str], environment: Mapping[str, str] | None = None, stdin: str = "") -> Ended:
    """Run any command in the root of the repository."""
    ended = subprocess.run(
        line,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def start(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `python runner.py` without waiting for its end."""
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
    """Wait for a process that `start` has started."""
    out, err = process.communicate(timeout=SECONDS)
    return Ended(process.returncode, out, err)


def program(*arguments: str, request: Any = None, environment: Mapping[str, str] | None = None) -> Any:
    """Run a support program in a fresh process; both sides speak JSON, one object on stdin and one on stdout."""
    variables = {"PYTHONPATH": str(ROOT), **(environment or {})}
    ended = call([sys.executable, *arguments], variables, json.dumps(request))
    assert ended.exit_code == 0, ended.err
    return json.loads(ended.out.splitlines()[-1])


@dataclass(frozen=True)
class Runs:
    """A config, the folder its runs write to, and the first of them."""

    arguments: tuple[str, ...]
    output: Path
    """out/<pipeline>"""
    first: Ended

    def again(self, *arguments: str, environment: dict[str, str] | None = None) -> Ended:
        """Run the pipeline again, into the same folder."""
        return command(*self.arguments, *arguments, environment=environment)

    @property
    def config(self) -> tuple[str, ...]:
        """The arguments that select the config, without the arguments of a single run.

        `--local` without a config runs the taxi example; other verbs need its path.
        """
        return self.arguments[2:-2] or ("--config", "configs/taxi.yaml")

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.output.name

    @property
    def model_run(self) -> Path:
        """The folder of the first ModelRun, the Trainer's second output."""
        return min((self.output / "artifacts" / "Trainer" / "model_run").iterdir(), key=lambda path: int(path.name))

    @property
    def pushed(self) -> list[str]:
        """The pushed versions, oldest first."""
        return versions(self.output)


def first_run(
    folder: Path,
    pipeline: str,
    *arguments: str,
    only: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    process: bool = False,
) -> Runs:
    """Run a pipeline for the first time.

    Args:
      folder: Parent of the output folder.
      pipeline: its name.
      arguments: Arguments of every run.
      only: Further arguments of this run.
      environment: Environment variables of this run.
      process: Whether to run in a new process, as for a user, instead of a fork.
    """
    every = ("--local", "--json", *arguments, "--output", str(folder / "out"))
    run = command_process if process else command
    return Runs(every, folder / "out" / pipeline, run(*every, *only, environment=environment))


def assert_nothing_half(output: Path, run: str, pushed: Sequence[str] = ()) -> None:
    """Check that a failed run left no new model, no open execution and no output of the failed node.

    Args:
      output: out/<pipeline>.
      run: the run's id.
      pushed: the versions that were there before it.
    """
    executions = Store(output / "metadata.db").executions(run)
    assert not [execution for execution in executions if execution.state in ("NEW", "RUNNING")]
    failed = [execution for execution in executions if not execution.succeeded]
    assert failed
    for execution in failed:
        folders = (output / "artifacts" / execution.node).glob(f"[!.]*/{execution.id}")
        assert not [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert versions(output) == list(pushed)


def versions(output: Path) -> list[str]:
    """Return the pushed versions that a model server finds, oldest first; check that nothing else is there."""
    versions = (output / "pushed").glob("[!.]*")
    entries = [entry for entry in versions if entry.name not in ("registry.json", "rollout")]
    assert all(entry.name.isdecimal() and (entry / "saved_model.pb").is_file() for entry in entries)
    return sorted(entry.name for entry in entries)


def make_data(name: str, *arguments: str) -> None:
    """Create the data of an example, unless it exists."""
    subprocess.run([sys.executable, "-m", f"data.{name}", *arguments], cwd=ROOT, check=True, capture_output=True)
