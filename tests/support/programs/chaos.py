"""Random faults in whole runs on this machine, drawn from a seed, and what must hold after each.

    PYTHONPATH=. python tests/support/programs/chaos.py --strategy parameter_server --faults 200 --seed 1 --record FILE

A trial starts a run, and injects faults at random moments: one of its processes is killed, frozen for a while or
asked to end, all are killed at once, the disk fills up, or a service that it needs is killed and comes back: the
database of the metadata, or a process of a Flink cluster. The run is resumed, with more faults, until it is done; then
the next trial begins. Under Airflow, see chaos_airflow.py. A line of the record is a fault:

- the run ends within `LIMIT` seconds, with the exit code of a fault or of success, and never of a verdict;
- no process of it is left, and nobody but the run has printed a traceback;
- each pushed version is complete and equals its manifest;
- the outputs of completed executions exist.

When the run is done, no execution is RUNNING, and verdict and metric equal the results of a run without faults.
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
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from components.base.errors import InputError
from components.results import version_manifest
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.sql import NoTablesError
from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import ROOT
from tests.support.servers import databases, flink_cluster

LIMIT = 600.0
"""Seconds after which a run hangs."""
_ORPHANS = 20.0
"""Seconds that processes of a run have to end after it."""
_GUARD = "flink_rest.py", 200.0
"""What waits for a job that may still be on its way to Flink, to cancel it, and how long it has for that."""
_LASTS = 2.0
"""Seconds that a disk is full, a service is gone, and a process is frozen."""
_AGAIN = 0.15
"""Share of starts without a fault, so that a trial ends."""
TAG = "TFX_PIPELINE_CHAOS"
_SIZE = 300
"""Size of the disk, in MiB; a run is not started with less than 200 free."""
STRATEGIES: Mapping[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "multi_worker": {"kind": "multi_worker", "workers": 2},
    "parameter_server": {"kind": "parameter_server", "workers": 2, "ps": 1},
}
_TOLERANCE = {"none": 1e-6, "multi_worker": 1e-3, "parameter_server": 0.05}
"""Of the AUC: the steps of parameter servers are asynchronous."""


class Service(Protocol):
    """A service outside the run's processes that the run needs."""

    def stop(self) -> None:
        """Kill the service."""

    def start(self) -> None:
        """Restart the service."""


@dataclasses.dataclass(frozen=True)
class _FlinkService:
    cluster: flink_cluster.Cluster
    name: str

    def stop(self) -> None:
        self.cluster.kill(self.name)

    def start(self) -> None:
        self.cluster.start_again(self.name)


@dataclasses.dataclass
class Fault:
    """One injected fault, a line of the record.

    Attributes:
      seed: Seed of the campaign.
      number: Index of this fault, from 0.
      kind: kill, freeze, terminate, interrupt, kill_all, terminate_all, disk or service; none if nothing happened.
      after: Seconds after the start of the command; an earlier fault may have hit the same command.
      victim: Role of the process, from its command line, or the name of the service.
      exit_code: of the command.
      seconds: Duration of the command.
      violations: Descriptions of the broken guarantees.
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
      database: Server for the metadata. If None, a file is used.
      cluster: Flink cluster for the Beam pipelines. If None, they run on this machine.
    """

    def __init__(
        self,
        strategy: str,
        seed: int,
        folder: Path,
        database: databases.Server | None = None,
        cluster: flink_cluster.Cluster | None = None,
    ) -> None:
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
        if cluster:
            sections["runtime"] = {"engine": "flink", "flink": cluster.section}
        self._config = people.project(folder, **sections)
        self._services: dict[str, Service] = {"database": database} if database else {}
        self._services |= {name: _FlinkService(cluster, name) for name in cluster.services} if cluster else {}
        self._kinds = ["kill", "kill", "kill", "freeze", "terminate", "interrupt", "kill_all", "terminate_all", "disk"]
        self._kinds += ["service"] * 4 if self._services else []

    def faults(self, count: int) -> Iterator[Fault]:
        """Yield this many faults, each after its run has ended."""
        with mount_small_disk(self._disk):
            reference = Fault(self._seed, -1)
            expected = self._start([reference], [])
            if reference.violations or reference.exit_code:
                raise AssertionError(reference, expected)
            number, arguments = 0, list[str]()
            while number < count:
                faults: list[Fault] = []
                most = 0 if self._random.random() < _AGAIN else count - number
                result = self._start(faults, arguments, most, reference.seconds)
                last = faults[-1]
                if last.exit_code == 0:
                    last.violations += differences(result, expected, _TOLERANCE[self._strategy], self._store())
                    self._empty()
                arguments = ["--resume", "latest"] if any(self._output.glob("logs/*/run.json")) else []
                for fault in faults:
                    if fault.kind != "none":
                        fault.number, number = number, number + 1
                    if fault.kind != "none" or fault.violations:
                        yield fault

    @property
    def _output(self) -> Path:
        return self._disk / "out" / "people"

    def _empty(self) -> None:
        shutil.rmtree(self._disk / "out")
        if self._database:
            self._database.renew()

    def _start(self, faults: list[Fault], arguments: list[str], most: int = 0, usual: float = 0.0) -> dict[str, Any]:
        """Run the command; return its result, or an empty dictionary if it printed nothing.

        Args:
          faults: List to which the injected faults are appended; a fault of kind none if nothing was hit.
          arguments: Arguments of the command.
          most: Largest number of faults.
          usual: Usual duration of the command in seconds.
        """
        started = time.monotonic()
        command = [sys.executable, "runner.py", "--local", "--json", *arguments]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                [*command, "--config", str(self._config), "--output", str(self._disk / "out")],
                cwd=ROOT,
                env={**os.environ, TAG: self._tag, "DATABASE_PASSWORD": databases.PASSWORD},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            pause = usual
            for _ in range(most):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._random.uniform(0, pause))
                fault = Fault(self._seed, 0, self._random.choice(self._kinds), round(time.monotonic() - started, 2))
                if not self._strike(fault, process):
                    break
                faults.append(fault)
                pause = usual / 2
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT)
            faults += [] if faults else [Fault(self._seed, -1)]
            for fault in faults:
                fault.exit_code, fault.seconds = process.poll(), round(time.monotonic() - started, 1)
            out.seek(0)
            err.seek(0)
            result: dict[str, Any] = json.loads(out.read() or "{}")
            faults[-1].violations += self._violations(process, result, err.read())
        return result

    def _strike(self, fault: Fault, process: subprocess.Popen[bytes]) -> bool:
        """Inject a fault; return whether the run was still in progress."""
        draw = self._random.random()
        family = sorted(family_of(self._tag), key=lambda process: process.pid)
        if process.poll() is not None or not family:
            return False
        victim = family[int(draw * len(family))]
        with contextlib.suppress(psutil.NoSuchProcess):
            if fault.kind == "disk":
                release = fill(self._disk)
                time.sleep(_LASTS)
                release()
            elif fault.kind == "service":
                fault.victim = sorted(self._services)[int(draw * len(self._services))]
                self._services[fault.victim].stop()
                time.sleep(_LASTS)
                self._services[fault.victim].start()
            else:
                fault.victim = "the run" if victim.pid == process.pid else " ".join(victim.cmdline()[1:4])[:80]
                hit(fault.kind, victim, family, process.pid)
        return True

    def _violations(self, process: subprocess.Popen[bytes], result: Mapping[str, Any], err: str) -> Iterator[str]:
        if process.poll() is None:
            yield f"the run has not ended after {LIMIT:g} s"
            process.kill()
        # If a second signal arrives while Python ends, the signal kills it, which a shell reports as 130 or 143.
        elif process.returncode not in (0, 1, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            yield f"exit code {process.returncode}: {result.get('error')} {err[-500:]}"
        if "Traceback" in err:
            yield f"a traceback: {err[-1000:]}"
        yield from kill_remaining(self._tag)
        yield from incomplete(self._output, self._store())

    def _store(self) -> Store | None:
        location: Location = self._database.location if self._database else self._output / "metadata.db"
        try:
            return Store(location) if self._database or self._output.joinpath("metadata.db").exists() else None
        except NoTablesError:
            return None


def family_of(tag: str) -> list[psutil.Process]:
    """Return the living processes whose initial environment contains the tag."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(TAG) == tag:
                processes.append(process)
    return processes


def hit(kind: str, victim: psutil.Process, family: Sequence[psutil.Process], group: int) -> None:
    """Kill, freeze or terminate a process, a family of processes, or a process group."""
    if kind == "kill_all":
        for process in family:
            process.kill()
    elif kind == "terminate_all":
        os.killpg(group, signal.SIGTERM)
    elif kind == "freeze":
        victim.suspend()
        time.sleep(_LASTS)
        victim.resume()
    else:
        victim.send_signal({"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}[kind])


def kill_remaining(tag: str) -> Iterator[str]:
    """Kill the processes that are still alive after a run, and yield a description of each."""
    _, late = psutil.wait_procs(family_of(tag), _ORPHANS)
    guards = [process for process in late if _is_guard(process)]
    for survivor in [*(process for process in late if process not in guards), *psutil.wait_procs(guards, _GUARD[1])[1]]:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield f"a process is left: {survivor.pid} {survivor.status()} {' '.join(survivor.cmdline())[:200]}"
            survivor.kill()


def _is_guard(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(word.endswith(_GUARD[0]) for word in process.cmdline())
    return False


def incomplete(output: Path, store: Store | None) -> Iterator[str]:
    """Yield descriptions of incomplete outputs that are visible in a pipeline's folder."""
    for version in sorted((output / "pushed").glob("[0-9]*")):
        try:
            version_manifest.verify(version)
        except InputError as error:
            yield f"a pushed version is not complete: {error.headline}"
    for run in store.runs() if store else ():
        for execution in store.executions(run.name) if store else ():
            if execution.succeeded:
                outputs = (
                    [artifact for group in store.outputs(execution).values() for artifact in group] if store else []
                )
                gone = [artifact.uri for artifact in outputs if not Path(artifact.uri).exists()]
                yield from (f"{execution.node} is complete, and its output is gone: {uri}" for uri in gone)


def differences(
    result: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float, store: Store | None
) -> Iterator[str]:
    """Yield the differences between a completed run and a run without faults."""
    if result["verdict"] != expected["verdict"]:
        yield f"the verdict is {result['verdict']}, without faults {expected['verdict']}"
    auc, expected_auc = (entry["metrics"]["auc"] for entry in (result, expected))
    if not abs(auc - expected_auc) <= tolerance:
        yield f"the AUC is {auc}, without faults {expected_auc}"
    for run in store.runs() if store else ():
        states = {execution.node: execution.state for execution in store.executions(run.name)} if store else {}
        yield from (f"{node} of {run.name} is {state}" for node, state in states.items() if state == "RUNNING")


@contextlib.contextmanager
def mount_small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system at `folder` until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Callable[[], None]:
    """Fill a disk; return a function that frees the space."""
    file = disk / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 16))
    return lambda: file.unlink(missing_ok=True)


def main() -> int:
    """Print a line for each fault; return 1 if a guarantee was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="none")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=databases.SERVERS)
    parser.add_argument("--flink", action="store_true", help="a cluster of it runs the Beam pipelines")
    parser.add_argument("--airflow", action="store_true", help="starts the runs")
    parser.add_argument("--record", type=Path, help="JSON Lines")
    options = parser.parse_args()
    # Imported here because it imports this module.
    from tests.support.programs.chaos_airflow import AirflowCampaign

    broken = 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(databases.SERVERS[options.database]()) if options.database else None
        os.environ["METADATA_PASSWORD"] = databases.PASSWORD
        cluster = stack.enter_context(flink_cluster.flink_cluster(folder / "flink")) if options.flink else None
        campaign: Campaign | AirflowCampaign = Campaign(options.strategy, options.seed, folder, database, cluster)
        if options.airflow:
            campaign = AirflowCampaign(options.seed, folder)
        for fault in campaign.faults(options.faults):
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
