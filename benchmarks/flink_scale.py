"""Compare the data path on a Flink session cluster with the direct engine, node by node.

    python -m benchmarks.flink_scale                    10,000,000 taxi trips; half an hour
    python -m benchmarks.flink_scale --rows 300_000     any other number

The trips are simulated, and read from Parquet. Every run is configs/taxi.yaml from nothing to the verdict of the
Evaluator, one node at a time, with one training process and few steps. The cluster has the processes of
deploy/flink/compose.yaml, started on this machine (tests/support/servers/flink_cluster.py; `make engines` installs
Flink), with one or two task managers of one slot. It runs the pipeline on the 15,002 real trips first. `direct` uses as
many workers as Flink has task managers.

CPU-seconds include the node's process and its workers and, with Flink, the job manager, the task managers, the job
server and the worker pool. Memory is the sum of the proportional set sizes of the same processes, so that pages shared
by forked processes count once. The largest sample during the node is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks import measure
from benchmarks.data_path import DATA_PATH, SETTINGS
from benchmarks.measure import Facts, Measurement, Spread, Work
from data import taxi
from data.output import positive

ROWS = 10_000_000
_PARTS = {
    "TaskManagerRunner": "task managers",
    "StandaloneSessionClusterEntrypoint": "job manager",
    "--flink-master": "job server",
    "worker-pool": "Python workers",
}
"""Word in the command line of a process → part of the cluster."""
_STARTER = "flink_cluster"
"""Word in the command line of the program that starts the cluster, which is not counted."""
_SAMPLE_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=positive, default=ROWS, help="number of trips")
    parser.add_argument("--workers", type=positive, nargs="+", default=(1, 2), help="numbers of task managers")
    parser.add_argument("--rounds", type=positive, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trips = folder / "trips.parquet"
        make = [sys.executable, "-m", taxi.__name__, "--rows", str(options.rows), "--output", str(trips)]
        subprocess.run(make, check=True)
        sides = {
            f"{engine}, {workers}": _Side(folder / f"{engine}-{workers}", trips, options.rows, engine, workers)
            for workers in options.workers
            for engine in ("direct", "flink")
        }
        measured = measure.in_turns({name: side.run for name, side in sides.items()}, options.rounds)
    facts: Facts = {}
    for name, side in sides.items():
        facts |= side.facts(name)
    for workers in options.workers:
        on_flink, alone = (measured[f"{engine}, {workers}"] for engine in ("flink", "direct"))
        facts[f"CPU time, flink / direct, {workers}"] = measure.ratio(on_flink, alone, "work.cpu")
    fewest, most = min(options.workers), max(options.workers)
    for engine in ("direct", "flink") if fewest < most else ():
        facts[f"wall time, {engine}, {fewest} / {most}"] = measure.ratio(
            measured[f"{engine}, {fewest}"], measured[f"{engine}, {most}"], "work.wall"
        )
    command = " ".join(["python -m benchmarks.flink_scale", *(sys.argv[1:] if arguments is None else arguments)])
    print(measure.record("flink_scale", command, measured, facts))


@dataclass(frozen=True)
class Sample:
    """Usage of all processes so far.

    Attributes:
      moment: Time in seconds since 1970.
      cpu: Part of the cluster → CPU-seconds of its processes, including ended processes.
      memory_mb: Sum of the proportional set sizes in MiB.
    """

    moment: float
    cpu: Mapping[str, float]
    memory_mb: float


@dataclass(frozen=True)
class Node:
    """Usage of a node.

    Attributes:
      wall: Wall time in seconds.
      cpu: Part of the cluster, or `node` for the node's processes → CPU-seconds.
      peak_mb: Peak memory of all processes together, in MiB.
    """

    wall: float
    cpu: Mapping[str, float]
    peak_mb: float

    @property
    def all_cpu(self) -> float:
        """CPU-seconds of all processes."""
        return sum(self.cpu.values())


class _Side:
    """A side that runs the pipeline up to the Evaluator.

    Args:
      folder: Folder for the output.
      trips: The Parquet file.
      rows: Number of rows in the file.
      engine: flink or direct.
      workers: Number of task managers, or of workers.
    """

    def __init__(self, folder: Path, trips: Path, rows: int, engine: str, workers: int) -> None:
        self._folder, self._trips, self._rows = folder, trips, rows
        self._engine, self._workers = engine, workers
        self._nodes: list[dict[str, Node]] = []

    def run(self, number: int) -> Measurement:
        """Run the pipeline once, and return the measurement with the work of the data path's nodes."""
        self._folder.mkdir()
        with _cluster(self._folder, self._workers if self._engine == "flink" else 0) as section:
            if section:
                # Warm up the session cluster, so that Java has loaded its classes and compiled hot code.
                measure.run(self._command(taxi.find_real_trips(), "first", section), self._folder / "log")
            command = self._command(self._trips, "out", section or {"workers": self._workers})
            with _Samples() as samples:
                measured = measure.run(command, self._folder / "log")
        [attempts] = (self._folder / "out" / "taxi" / "logs").glob("*/attempts.jsonl")
        lines = map(json.loads, attempts.read_text().splitlines())
        nodes = {attempt["node"]: node(samples.taken, attempt) for attempt in lines if attempt["node"] in DATA_PATH}
        shutil.rmtree(self._folder)
        self._nodes.append(nodes)
        wall = sum(node.wall for node in nodes.values())
        cpu = sum(node.all_cpu for node in nodes.values())
        peak = max(node.peak_mb for node in nodes.values())
        return replace(measured, work=Work(self._rows, round(wall, 2), round(cpu, 2), round(peak)))

    def _command(self, trips: Path, output: str, section: Mapping[str, object]) -> list[str]:
        sets = [*SETTINGS, "runtime.parallel_nodes=1", f"data.path={trips}"]
        sets += [f"runtime.{self._engine}.{name}={value}" for name, value in section.items()]
        command = [sys.executable, "runner.py", "--local", "--json", "--to", "Evaluator", "--engine", self._engine]
        return [
            *command,
            "--output",
            str(self._folder / output),
            *(word for setting in sets for word in ("--set", setting)),
        ]

    def facts(self, name: str) -> Facts:
        """Return seconds, CPU-seconds by part, and memory of all nodes."""
        facts: Facts = {}
        for node in DATA_PATH:
            rounds = [nodes[node] for nodes in self._nodes]
            parts = ", ".join(
                f"{part} {Spread.of(node_run.cpu[part] for node_run in rounds)}" for part in rounds[0].cpu
            )
            facts[f"{name}, {node}"] = (
                f"{Spread.of(node_run.wall for node_run in rounds)} s, "
                f"{Spread.of(node_run.all_cpu for node_run in rounds)} CPU-s ({parts}), "
                f"{Spread.of(node_run.peak_mb for node_run in rounds)} MiB"
            )
        return facts


def node(samples: Sequence[Sample], attempt: Mapping[str, float]) -> Node:
    """Compute the usage of a node from its record and, for the parts of the cluster, from the samples around it.

    Args:
      samples: Samples in the order of time, from before the node to after it.
      attempt: Record of the node in attempts.jsonl.
    """
    start, end = attempt["ended"] - attempt["seconds"], attempt["ended"]
    first = max(number for number, sample in enumerate(samples) if sample.moment <= start)
    last = min(number for number, sample in enumerate(samples) if sample.moment >= end)
    before, after = samples[first].cpu, samples[last].cpu
    cpu = {part: round(after[part] - before[part], 2) for part in before if after[part]}
    peak = max(sample.memory_mb for sample in samples[first : last + 1])
    return Node(attempt["seconds"], {"node": attempt["cpu_seconds"], **cpu}, peak)


@contextlib.contextmanager
def _cluster(folder: Path, task_managers: int) -> Iterator[Mapping[str, object]]:
    """Start a Flink cluster, and yield the section of the config; without task managers, yield an empty section."""
    if not task_managers:
        yield {}
        return
    program = ["tests/support/servers/flink_cluster.py", str(folder / "cluster"), str(task_managers)]
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *program],
            env={**os.environ, "PYTHONPATH": "."},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise RuntimeError((folder / "cluster.log").read_text()[-2000:])
    try:
        yield json.loads(line)
    finally:
        process.communicate()


class _Samples:
    """Samples the processes of a run and its cluster in a thread, while the context is entered.

    Attributes:
      taken: The samples in the order of time.
    """

    def __init__(self) -> None:
        self.taken: list[Sample] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._take)
        self._parts: dict[psutil.Process, str] = {}

    def __enter__(self) -> _Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _take(self) -> None:
        while not self._end.wait(_SAMPLE_SECONDS):
            self.taken.append(self._sample())
        self.taken.append(self._sample())

    def _sample(self) -> Sample:
        parts = dict.fromkeys(_PARTS.values(), 0.0)
        memory = 0
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                part = self._part(process)
                if part in parts:
                    # The times of a process include its children that have ended and were waited for.
                    parts[part] += sum(process.cpu_times()[:4])
                if part != _STARTER:
                    memory += process.memory_full_info().pss
        return Sample(time.time(), parts, round(memory / 2**20))

    def _part(self, process: psutil.Process) -> str:
        """Return the part of the cluster to which a process belongs, `flink_cluster`, or `node`."""
        if process not in self._parts:
            words = " ".join(process.cmdline())
            known = {**_PARTS, _STARTER: _STARTER}
            self._parts[process] = next((part for word, part in known.items() if word in words), "node")
        return self._parts[process]


if __name__ == "__main__":
    main()
