"""Compare training with its real input and with a constant batch, and on one core and on two.

python -m benchmarks.training input|scaling [--rounds 5] [--rows 300_000]

- `input`: steps of the examples' models with batches of 4,096 (taxi: wide and deep; clicks: DLRM), on the transformed
  examples of a run: ours from memory, ours from files (`cache: none`), ours from files of the same rows in TFRecords,
  and the dataset of stock TFX. The cost of the input is the additional time compared with steps on a constant batch in
  memory; each process alternates between both.
- `scaling`: a large DLRM (8 tables of 125,000 x 32), trained by one process on one core, by synchronous workers, and
  by workers with parameter servers, on two cores. Worker i and ps i share core i, and the chief uses the first core.

Each side is a process or a cluster of processes (training_program.py), and reports only the steps after the warm-up.
The speed-up in `scaling` is computed for a cluster with dedicated cores: CPU-seconds per example of one process,
divided by the CPU-seconds of the cluster's busier core. The speed-up in wall time, which depends on other processes, is
reported as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements, Spread, Work
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

_BATCH = 4_096
_STEPS = 240
_CONFIGS = {"taxi": (), "clicks": ("model.kind=dlrm",)}
"""Example → settings of its config."""
_TABLES = {"taxi": "trips.csv", "clicks": "clicks.csv"}
_WANTED = {"taxi, ours": 0.15, "clicks, ours": 0.2, "taxi, ours, from files": 0.25, "clicks, ours, from files": 0.25}
"""Side → target for the cost of the input, relative to steps on a constant batch."""
_INPUTS = {
    "ours": ("ours", "training.cache=memory"),
    "ours, from files": ("ours", "training.cache=none"),
    "TFRecords, from files": ("tfrecords", "training.cache=none"),
    "stock TFX": ("stock",),
}
"""Side of `input` → source of the batches, and settings of the config."""

_WORKERS = 2
_CLUSTERS: dict[str, tuple[dict[str, Any], float]] = {
    "parameter_server": ({"kind": "parameter_server", "workers": _WORKERS, "ps": 2}, 1.5),
    "multi_worker": ({"kind": "multi_worker", "workers": _WORKERS}, 1.25),
}
"""Cluster of `scaling` → strategy, and target for the speed-up with the larger batch."""
_BATCHES = {8_192: 40, 1_024: 160}
"""Batch size of a worker → number of measured steps of all workers together."""


@dataclass(frozen=True)
class Bench:
    """Settings of the benchmark.

    Attributes:
      data: Folder of the tables.
      scratch: Folder for the output of the sides.
      rounds: Number of runs per side.
      rows: Number of rows of each table.
    """

    data: Path
    scratch: Path
    rounds: int
    rows: int

    def run_transform(self, example: str) -> list[str]:
        """Run an example up to Transform on simulated rows; return its config and the settings."""
        table = self.data / example / f"rows-{self.rows}-seed-0" / _TABLES[example]
        _call([sys.executable, "-m", f"data.{example}", "--rows", str(self.rows), "--output", str(table)])
        path = f"configs/{example}.yaml"
        chosen = [*_CONFIGS[example], f"data.path={table}", f"runtime.output={self.scratch / example}"]
        setting = [part for setting in chosen for part in ("--set", setting)]
        _call([sys.executable, "runner.py", "--local", "--config", path, "--to", "Transform", "--json", *setting])
        return [path, *chosen]

    def input_side(
        self, side: str, steps: int, given: Sequence[str], turns: list[Turns]
    ) -> Callable[[int], Measurement]:
        """Return a function that runs a side of `input` once, and appends the CPU time of its steps to `turns`."""
        command = [sys.executable, "-m", "benchmarks.training_program", "input", side, str(steps), *given]
        command += [f"training.batch_size={_BATCH}", "training.strategy.kind=none"]

        def run(_number: int) -> Measurement:
            log = self.scratch / "input.log"
            measured = measure.run(command, log)
            turns.append(Turns(**json.loads(log.read_text().splitlines()[-1])))
            return measured

        return run

    def cluster_side(
        self, training: Mapping[str, Any], examples: int, tasks: list[Tasks]
    ) -> Callable[[int], Measurement]:
        """Return a function that runs a side of `scaling` once, and appends the usage of its tasks to `tasks`."""

        def run(_number: int) -> Measurement:
            folder = Path(tempfile.mkdtemp(dir=self.scratch))
            steps = examples // training["batch_size"]
            command = [sys.executable, "-m", "benchmarks.training_program", "scaling"]
            log = folder.with_suffix(".log")
            measured = measure.run([*command, str(folder), str(steps), json.dumps(training)], log)
            record = json.loads(log.read_text().splitlines()[-1])
            measured_tasks = Tasks(record["wall"], record["tasks"], examples)
            tasks.append(measured_tasks)
            return replace(measured, work=measured_tasks.work)

        return run


@dataclass(frozen=True)
class Turns:
    """CPU-seconds of the same number of steps with both inputs.

    Attributes:
      constant: CPU-seconds with the constant batch.
      real: CPU-seconds with the side's input.
    """

    constant: float
    real: float


@dataclass(frozen=True)
class Tasks:
    """Time and memory of a cluster's tasks during some steps.

    Attributes:
      wall: Wall time in seconds.
      by_name: Task → its `core`, its `user` and `system` CPU-seconds, and its resident memory in MiB (`mb`).
      examples: Number of examples on which the tasks have trained.
    """

    wall: float
    by_name: Mapping[str, Mapping[str, float]]
    examples: int

    @property
    def work(self) -> Work:
        """Work of all tasks together, with the memory of the largest task."""
        cpu = sum(map(_cpu, self.by_name.values()))
        return Work(
            self.examples, round(self.wall, 3), round(cpu, 3), max(task["mb"] for task in self.by_name.values())
        )

    @property
    def busiest(self) -> float:
        """CPU-seconds of the busiest core."""
        cores: dict[float, float] = {}
        for task in self.by_name.values():
            cores[task["core"]] = cores.get(task["core"], 0.0) + _cpu(task)
        return max(cores.values())


def _cpu(task: Mapping[str, float]) -> float:
    return task["user"] + task["system"]


def input_(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare the inputs of the sides with a constant batch."""
    sides: dict[str, Callable[[int], Measurement]] = {}
    turns: dict[str, list[Turns]] = {}
    for example in _CONFIGS:
        arguments = bench.run_transform(example)
        for side, (source, *setting) in _INPUTS.items():
            name = f"{example}, {side}"
            turns[name] = []
            sides[name] = bench.input_side(source, _STEPS, [*arguments, *setting], turns[name])
    measured = measure.in_turns(sides, bench.rounds)
    facts: Facts = {"rows": bench.rows, "batch": _BATCH, "steps": _STEPS}
    for name, rounds in turns.items():
        target = f" (wanted: at most {_WANTED[name]})" if name in _WANTED else ""
        facts |= {
            f"{name}: input over a constant batch{target}": Spread.of(turn.real / turn.constant - 1 for turn in rounds),
            f"{name}: input's share of a step": Spread.of(1 - turn.constant / turn.real for turn in rounds),
            f"{name}: CPU-ms of a step": Spread.of(_milliseconds(turn.real, _STEPS) for turn in rounds),
            f"{name}: CPU-ms of a step on a constant batch": Spread.of(
                _milliseconds(turn.constant, _STEPS) for turn in rounds
            ),
        }
    return measured, facts


def scaling(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare the clusters with one process, for all batch sizes."""
    _call([sys.executable, "-m", "benchmarks.training_program", "examples", str(bench.scratch / "examples")])
    sides: dict[str, Callable[[int], Measurement]] = {}
    tasks: dict[str, list[Tasks]] = {}
    for batch, steps in _BATCHES.items():
        name = _name(batch, "one process")
        tasks[name] = []
        sides[name] = bench.cluster_side({"batch_size": batch}, batch * steps, tasks[name])
        for kind, (chosen, _) in _CLUSTERS.items():
            name = _name(batch, kind)
            tasks[name] = []
            together = batch * (_WORKERS if kind == "multi_worker" else 1)
            sides[name] = bench.cluster_side({"batch_size": together, "strategy": chosen}, batch * steps, tasks[name])
    measured = measure.in_turns(sides, bench.rounds)
    return measured, {"model": "DLRM, 8 tables of 125,000 x 32, hidden layers 512-256-128, Adam"} | _speed_ups(tasks)


def _speed_ups(tasks: Mapping[str, Sequence[Tasks]]) -> Facts:
    facts: Facts = {}
    for batch, steps in _BATCHES.items():
        alone = tasks[_name(batch, "one process")]
        facts[f"{_name(batch, 'one process')}: CPU-ms per step"] = _by_task(alone, steps)
        for kind, (_, speed_up) in _CLUSTERS.items():
            name = _name(batch, kind)
            pairs = list(zip(alone, tasks[name], strict=True))
            target = f" (wanted: at least {speed_up})" if batch == max(_BATCHES) else ""
            facts |= {
                f"{name}: speed-up by CPU of the busier core{target}": Spread.of(
                    single.busiest / cluster.busiest for single, cluster in pairs
                ),
                f"{name}: speed-up by wall time": Spread.of(single.wall / cluster.wall for single, cluster in pairs),
                f"{name}: CPU of all tasks / one process": Spread.of(
                    cluster.work.cpu / single.work.cpu for single, cluster in pairs
                ),
                f"{name}: CPU-ms per {batch:,} examples": _by_task(tasks[name], steps),
            }
    return facts


def _by_task(rounds: Sequence[Tasks], steps: int) -> str:
    rows = []
    for name in rounds[0].by_name:
        user, system = (
            _milliseconds(statistics.median(round_.by_name[name][key] for round_ in rounds), steps)
            for key in ("user", "system")
        )
        rows.append(f"{name} {user + system:.0f} ({system:.0f} of them in the kernel)")
    return ", ".join(rows)


def _name(batch: int, kind: str) -> str:
    return f"batch {batch:,}, {kind}"


def _milliseconds(seconds: float, steps: int) -> float:
    return seconds / steps * 1e3


def _call(command: Sequence[str]) -> None:
    """Run a command to its end; its output goes to stderr, apart from the output of this program."""
    subprocess.run(command, check=True, stdout=sys.stderr)


BENCHMARKS: dict[str, Callable[[Bench], tuple[Measurements, Facts]]] = {"input": input_, "scaling": scaling}


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="how often each side is run")
    parser.add_argument("--rows", type=positive, default=300_000, help="input: rows of each table")
    parser.add_argument("--data", type=Path, default=Path("data"), help="input: where the tables are kept")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="where the record is written")
    options = parser.parse_args(arguments)
    # Set before TensorFlow is imported, as in our nodes; the sides inherit it.
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.data, Path(scratch), options.rounds, options.rows)
        measured, facts = BENCHMARKS[options.benchmark](bench)
    command = f"python -m benchmarks.training {shlex.join(arguments)}"
    print(measure.record(f"training_{options.benchmark}", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
