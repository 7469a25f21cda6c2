"""Measure tables of 1 GiB on parameter servers: steps, memory, distinct lookups, and the pause for a checkpoint.

python -m benchmarks.embedding_tables [--rounds 3] [--rows 4_194_304] [--seconds 30]

- Steps of one process, and of a chief, 2 workers and 2 ps, which fetch a row of a batch either once or as often as it
  occurs in the batch. There is a table of items and a table of users, each with `rows` vectors of 32 floats. Ids have a
  frequency of 1 / rank, and batches have 2,048 rows with a history of 20 items.
- The longest time between two calls of ten steps per worker, without a checkpoint and while a checkpoint of the tables
  and their moments is written. Training either waits for the checkpoint or continues.

All processes share the cores of this machine, so that wall times differ from those of several machines.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Spread, Work
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

_BATCH = 2_048
_STEPS = 200
_SERVERS = {"kind": "parameter_server", "workers": 2, "ps": 2}
_STEPPED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "one process": ("distinct", {"kind": "none"}),
    "2 workers, 2 ps": ("distinct", _SERVERS),
    "2 workers, 2 ps, repeated rows": ("repeated", _SERVERS),
}
_WAYS = ("waiting", "background")


class Bench:
    """Runs the sides.

    Attributes:
      records: Side → records that its program has printed, by round.
    """

    def __init__(self, scratch: Path, rows: int, seconds: int) -> None:
        self._scratch, self._rows, self._seconds = scratch, rows, seconds
        self.records: dict[str, list[dict[str, Any]]] = {}

    def side(
        self, name: str, kind: str, amount: int, how: str, strategy: Mapping[str, Any]
    ) -> Callable[[int], Measurement]:
        """Return a function that runs a side once."""
        self.records[name] = []
        training = json.dumps({"batch_size": _BATCH, "steps": 10**6, "strategy": strategy})

        def run(_number: int) -> Measurement:
            folder = Path(tempfile.mkdtemp(dir=self._scratch)) / "side"
            log = folder.parent / "log"
            program = [sys.executable, "-m", "benchmarks.embedding_tables_program"]
            measured = measure.run([*program, kind, str(folder), str(amount), str(self._rows), how, training], log)
            record = json.loads(log.read_text().splitlines()[-1])
            shutil.rmtree(folder.parent)
            self.records[name].append(record)
            if "tasks" not in record:
                return measured
            cpu = sum(task["cpu"] for task in record["tasks"].values())
            most = max(task["mb"] for task in record["tasks"].values())
            work = Work(record["steps"] * _BATCH, round(record["wall"], 3), round(cpu, 3), round(most, 1))
            return Measurement(measured.wall, measured.cpu, measured.peak_mb, work)

        return run

    def sides(self) -> dict[str, Callable[[int], Measurement]]:
        """Return all sides by name."""
        sides = {
            name: self.side(name, "steps", _STEPS, lookup, strategy) for name, (lookup, strategy) in _STEPPED.items()
        }
        return sides | {
            f"checkpoint, {how}": self.side(f"checkpoint, {how}", "checkpoint", self._seconds, how, _SERVERS)
            for how in _WAYS
        }


def facts(records: Mapping[str, list[dict[str, Any]]]) -> Facts:
    """Return the figures of all sides."""
    figures: Facts = {}
    for name, rounds in records.items():
        if "tasks" in rounds[0]:
            figures[f"{name}: steps per second"] = Spread.of(record["steps"] / record["wall"] for record in rounds)
            for task in rounds[0]["tasks"]:
                cpu = Spread.of(1e3 * record["tasks"][task]["cpu"] / record["steps"] for record in rounds)
                memory = statistics.median(record["tasks"][task]["mb"] for record in rounds)
                figures[f"{name}: {task}"] = f"{cpu} CPU-ms per step, {memory:,.0f} MiB"
            continue
        figures[f"{name}: MiB"] = Spread.of(record["mb"] for record in rounds)
        figures[f"{name}: seconds until it is written"] = Spread.of(record["written"] for record in rounds)
        for when, words in (("alone", "without it"), ("meanwhile", "with it")):
            figures[f"{name}: longest time between calls {words}, s"] = Spread.of(
                record[when]["longest"] for record in rounds
            )
            figures[f"{name}: steps per second {words}"] = Spread.of(
                record[when]["steps_per_second"] for record in rounds
            )
        for task in rounds[0]["memory"]:
            before = statistics.median(record["memory_alone"][task] for record in rounds)
            most = statistics.median(record["memory"][task] for record in rounds)
            figures[f"{name}: {task}"] = f"{before:,.0f} MiB without it, {most:,.0f} MiB at most"
    alone, distinct, repeated = (records[name] for name in _STEPPED)
    for words, over, under in (("one process", distinct, alone), ("repeated rows", distinct, repeated)):
        pairs = list(zip(over, under, strict=True))
        figures[f"2 workers, 2 ps over {words}: wall time"] = Spread.of(
            record["wall"] / base["wall"] for record, base in pairs
        )
        figures[f"2 workers, 2 ps over {words}: CPU"] = Spread.of(_cpu(record) / _cpu(base) for record, base in pairs)
    return figures


def _cpu(record: Mapping[str, Any]) -> float:
    return float(sum(task["cpu"] for task in record["tasks"].values()))


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedding_tables")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--rows", type=positive, default=1 << 22, help="vectors of each of the two tables")
    parser.add_argument("--seconds", type=positive, default=30, help="seconds of training before a checkpoint")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": "-1"})
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), options.rows, options.seconds)
        measured = measure.in_turns(bench.sides(), options.rounds)
    command = f"python -m benchmarks.embedding_tables --rounds {options.rounds} --rows {options.rows}"
    print(measure.record("embedding_tables", f"{command} --seconds {options.seconds}", measured, facts(bench.records)))


if __name__ == "__main__":
    main()
