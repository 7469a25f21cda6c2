"""Random faults in whole runs on this machine, drawn from a seed, and what must hold after each.

    python tests/support/chaos.py --strategy parameter_server --faults 200 --seed 1 --record faults.jsonl

A trial starts a run, and does something to it at a random moment: a process of it is killed, frozen for a while or
asked to end, all are killed at once, the disk fills up, or the database of the metadata ends and comes back. The run is
resumed, with another fault, until it is done; then the next trial begins. A line of the record is a fault:

- the run ends within `_LIMIT` seconds, with the exit code of a fault or of success, and never of a verdict;
- no process of it is left, and nobody but the run has printed a traceback;
- each pushed version is complete and equals its manifest;
- the outputs of completed executions exist.

And when it is done: no execution is RUNNING, and the verdict and the metric are those of a run without faults.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import databases
import people
import psutil
from command import ROOT

from components import version_manifest
from components.errors import InputError
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.sql import NoTablesError
from pipeline.core.metadata.store import Store

_LIMIT = 300.0
"""Seconds after which a run hangs."""
_ORPHANS = 20.0
"""Seconds that processes of a run have to end after it."""
_AGAIN = 0.15
"""Share of starts without a fault, so that a trial ends."""
_TAG = "TFX_PIPELINE_CHAOS"
_SIZE = 300
"""Size of the disk, in MiB; a run is not started with less than 200 free."""
STRATEGIES: Mapping[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "multi_worker": {"kind": "multi_worker", "workers": 2},
    "parameter_server": {"kind": "parameter_server", "workers": 2, "ps": 1},
}
_TOLERANCE = {"none": 1e-6, "multi_worker": 1e-3, "parameter_server": 0.05}
"""Of the AUC: the steps of parameter servers are asynchronous."""


@dataclasses.dataclass
class Fault:
    """A line of the record.

    Attributes:
      seed: of all faults.
      number: of this one, from 0.
      kind: kill, freeze, terminate, interrupt, kill_all, terminate_all, disk or database; none: nothing happened.
      after: seconds after the start of the command.
      victim: what the process was doing, from its command line.
      exit_code: of the command.
      seconds: that it took.
      violations: what does not hold.
    """

    seed: int
    number: int
    kind: str = "none"
    after: float = 0.0
    victim: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    violations: list[str] = dataclasses.field(default_factory=list)


class Campaign:
    """Trials with one strategy.

    Args:
      strategy: a key of STRATEGIES.
      seed: of the faults.
      folder: for data and outputs; a file system of `_SIZE` MiB is mounted in it.
      database: for the metadata; None: a file.
    """

    def __init__(self, strategy: str, seed: int, folder: Path, database: databases.Server | None = None) -> None:
        self._strategy, self._seed, self._random = strategy, seed, random.Random(seed)  # noqa: S311 - the seed is recorded
        self._folder, self._database = folder, database
        self._disk = folder / "disk"
        self._tag = uuid.uuid4().hex
        training = {"steps": 300, "batch_size": 64, "learning_rate": 0.02, "checkpoint": {"every_steps": 50}}
        sections: dict[str, Any] = {
            "training": {**training, "strategy": STRATEGIES[strategy]},
            "serving": {"check": "server"},
        }
        if database:
            address = {"backend": database.backend, "host": "127.0.0.1", "port": database.port}
            account = {"database": "metadata", "user": databases.USER}
            account |= {"password_env": "DATABASE_PASSWORD"}  # pragma: allowlist secret
            sections["metadata"] = {**address, **account}
        self._config = people.project(folder, **sections)
        self._kinds = ["kill", "kill", "kill", "freeze", "terminate", "interrupt", "kill_all", "terminate_all", "disk"]
        self._kinds += ["database", "database"] if database else []

    def faults(self, count: int) -> Iterator[Fault]:
        """Yields this many faults, each after its run has ended."""
        reference = Fault(self._seed, -1)
        with _mounted(self._disk):
            expected = self._start(reference, [], 0.0)
            if reference.violations or reference.exit_code:
                raise AssertionError(reference, expected)
            number, arguments = 0, list[str]()
            while number < count:
                fault = Fault(self._seed, number)
                if self._random.random() > _AGAIN:
                    fault.kind = self._random.choice(self._kinds)
                result = self._start(fault, arguments, reference.seconds)
                if fault.exit_code == 0:
                    fault.violations += self._differences(result, expected)
                    self._empty()
                arguments = ["--resume", "latest"] if any(self._output.glob("logs/*/run.json")) else []
                if fault.kind != "none":
                    number += 1
                    yield fault
                elif fault.violations:
                    yield fault

    @property
    def _output(self) -> Path:
        return self._disk / "out" / "people"

    def _empty(self) -> None:
        shutil.rmtree(self._disk / "out")
        if self._database:
            self._database.renew()

    def _start(self, fault: Fault, arguments: list[str], usual: float) -> dict[str, Any]:
        """Runs the command with a fault; returns its result, which is empty if it has none."""
        started = time.monotonic()
        command = [sys.executable, "runner.py", "--local", "--json", *arguments]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                [*command, "--config", str(self._config), "--output", str(self._disk / "out")],
                cwd=ROOT,
                env={**os.environ, _TAG: self._tag, "DATABASE_PASSWORD": databases.PASSWORD},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            undo = self._strike(fault, process, usual) if fault.kind != "none" else None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LIMIT)
            if undo:
                undo.join()
            fault.exit_code, fault.seconds = process.poll(), round(time.monotonic() - started, 1)
            out.seek(0)
            err.seek(0)
            result: dict[str, Any] = json.loads(out.read() or "{}")
            fault.violations += self._violations(process, result, err.read())
        return result

    def _strike(self, fault: Fault, process: subprocess.Popen[bytes], usual: float) -> threading.Thread | None:
        """Waits for a random moment, and does what the fault says; returns the thread that ends it."""
        fault.after = round(self._random.uniform(0, usual), 2)
        draw = self._random.random()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(fault.after)
        family = sorted(self._family(), key=lambda each: each.pid)
        if process.poll() is not None or not family:
            fault.kind = "none"
            return None
        victim = family[int(draw * len(family))]
        with contextlib.suppress(psutil.NoSuchProcess):
            if fault.kind == "disk":
                return _later(2.0, _filled(self._disk))
            if fault.kind == "database" and self._database:
                self._database.stop()
                return _later(2.0, self._database.start)
            fault.victim = "the run" if victim.pid == process.pid else " ".join(victim.cmdline()[1:4])[:80]
            if fault.kind == "kill_all":
                for each in family:
                    each.kill()
            elif fault.kind == "terminate_all":
                os.killpg(process.pid, signal.SIGTERM)
            elif fault.kind == "freeze":
                victim.suspend()
                return _later(3.0, victim.resume)
            else:
                signals = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
                victim.send_signal(signals[fault.kind])
        return None

    def _family(self) -> list[psutil.Process]:
        """All processes that live and have the environment of this campaign's runs."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if each.status() != psutil.STATUS_ZOMBIE and each.environ().get(_TAG) == self._tag:
                    found.append(each)
        return found

    def _violations(self, process: subprocess.Popen[bytes], result: Mapping[str, Any], err: str) -> Iterator[str]:
        if process.poll() is None:
            yield f"the run has not ended after {_LIMIT:g} s"
            process.kill()
        elif process.returncode not in (0, 1, 130, 143, -signal.SIGKILL, -signal.SIGTERM):
            yield f"exit code {process.returncode}: {result.get('error')} {err[-500:]}"
        if "Traceback" in err:
            yield f"a traceback: {err[-1000:]}"
        _, family = psutil.wait_procs(self._family(), _ORPHANS)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                yield f"a process is left: {each.pid} {each.status()} {' '.join(each.cmdline())[:200]}"
                each.kill()
        for version in sorted((self._output / "pushed").glob("[0-9]*")):
            try:
                version_manifest.verify(version)
            except InputError as error:
                yield f"a pushed version is not complete: {error.headline}"
        store = self._store()
        for run in store.runs() if store else ():
            for execution in store.executions(run.name) if store else ():
                if execution.succeeded:
                    outputs = [each for group in store.outputs(execution).values() for each in group] if store else []
                    gone = [each.uri for each in outputs if not Path(each.uri).exists()]
                    yield from (f"{execution.node} is complete, and its output is gone: {uri}" for uri in gone)

    def _differences(self, result: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
        """How a completed run differs from one without faults."""
        if result["verdict"] != expected["verdict"]:
            yield f"the verdict is {result['verdict']}, without faults {expected['verdict']}"
        one, other = (each["metrics"]["auc"] for each in (result, expected))
        if not abs(one - other) <= _TOLERANCE[self._strategy]:
            yield f"the AUC is {one}, without faults {other}"
        store = self._store()
        for run in store.runs() if store else ():
            states = {each.node: each.state for each in store.executions(run.name)} if store else {}
            yield from (f"{node} of {run.name} is {state}" for node, state in states.items() if state == "RUNNING")

    def _store(self) -> Store | None:
        location: Location = self._database.location if self._database else self._output / "metadata.db"
        try:
            return Store(location) if self._database or self._output.joinpath("metadata.db").exists() else None
        except NoTablesError:
            return None


@contextlib.contextmanager
def _mounted(folder: Path) -> Iterator[None]:
    """A small file system, which ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _filled(disk: Path) -> Any:
    """Fills a disk; returns what frees it again."""
    file = disk / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 16))
    return file.unlink


def _later(seconds: float, act: Any) -> threading.Thread:
    thread = threading.Timer(seconds, act)
    thread.start()
    return thread


def main() -> int:
    """Prints a line for each fault; returns 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="none")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=databases.SERVERS)
    parser.add_argument("--record", type=Path, help="JSON Lines")
    options = parser.parse_args()
    broken = 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(databases.SERVERS[options.database]()) if options.database else None
        os.environ["METADATA_PASSWORD"] = databases.PASSWORD
        for fault in Campaign(options.strategy, options.seed, folder, database).faults(options.faults):
            line = json.dumps(dataclasses.asdict(fault))
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if options.record:
                with options.record.open("a") as record:
                    record.write(line + "\n")
            broken += bool(fault.violations)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
