"""CPU time of the data path, node by node: taxi trips through the whole pipeline, against plain NumPy and one core.

    python -m benchmarks.data_path                     15,002 to 1,000,000 trips; under 20 minutes
    python -m benchmarks.data_path --rows 10_000_000   any other number of trips
    python -m benchmarks.data_path --stock             with TFX's executors as well; two hours
    python -m benchmarks.data_path --cores 3_000_000   the wall time on two cores and on one

The trips are simulated (`python -m data.taxi --rows N`) and read from CSV. Every run is configs/taxi.yaml with one
training process and few steps, from nothing to a pushed version. The figures of a node include its process and the
workers that it forks, but not the imports, which happen once in the fork server. `plain` is a single program without a
pipeline that does the same work (`benchmarks.plain_program`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Spread, Work
from data import taxi

DATA_PATH = ("ExampleGen", "StatisticsGen", "Transform", "Evaluator")
"""The nodes that read all rows, without the Trainer."""
ROWS = (15_002, 300_000, 1_000_000)
SETTINGS = (
    *("training.strategy.kind=none", "training.steps=20", "training.checkpoint.every_steps=20"),
    # The model must be pushed, although a few steps may not reach more than a constant.
    *("evaluation.thresholds={auc: {min: 0}}", "evaluation.slice_thresholds={}"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="numbers of trips")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stock", action="store_true", help="run the pipeline with runtime.vectorised=false as well")
    parser.add_argument("--cores", type=int, metavar="ROWS", help="compare two cores with one instead")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sides: dict[str, _Side] = {}
        for rows in [] if options.cores else options.rows:
            sides |= _sides(folder, rows, options.stock)
        if options.cores:
            sides |= _cores(folder, options.cores)
        measured = measure.in_turns({name: side.run for name, side in sides.items()}, options.rounds)
    facts: Facts = {}
    for name, side in sides.items():
        facts |= side.facts(name)
    if options.cores:
        facts["wall time of the data path, one core / two cores"] = measure.ratio(
            measured["one core"], measured["two cores"], "work.wall"
        )
    else:
        facts |= _per_row(sides)
        facts |= {
            f"data path / plain program, {rows:,} rows, CPU time": measure.ratio(
                measured[_name("ours", rows)], measured[_name("plain", rows)], "work.cpu"
            )
            for rows in options.rows
        }
    name = "data_path_cores" if options.cores else "data_path"
    command = " ".join(["python -m benchmarks.data_path", *(sys.argv[1:] if arguments is None else arguments)])
    print(measure.record(name, command, measured, facts))


class _Pipeline:
    """A side that runs the whole pipeline.

    Args:
      folder: Folder for the output.
      trips: The CSV file.
      rows: Number of rows in the file.
      settings: Settings `SECTION.KEY=VALUE` in addition to the settings of all sides.
      prefix: Words before the command, such as `taskset -c 0`.
    """

    def __init__(
        self, folder: Path, trips: Path, rows: int, settings: Sequence[str] = (), prefix: Sequence[str] = ()
    ) -> None:
        self._folder, self._rows = folder, rows
        sets = [word for setting in (*SETTINGS, f"data.path={trips}", *settings) for word in ("--set", setting)]
        output = ["--output", str(folder / "out"), "--json"]
        self._command = [*prefix, sys.executable, "runner.py", "--local", *output, *sets]
        self._nodes: list[Mapping[str, Mapping[str, float]]] = []
        self.evaluated = 0

    def run(self, number: int) -> Measurement:
        """Run the pipeline once, and return the measurement with the work of the data path's nodes."""
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        log = self._folder.parent / f"{self._folder.name}.log"
        self._folder.mkdir(exist_ok=True)
        measured = measure.run(self._command, log)
        result = json.loads(log.read_text().splitlines()[-1])
        self.evaluated = result["rows_evaluated"]
        nodes = {name: result["nodes"][name] for name in DATA_PATH}
        self._nodes.append(nodes)
        wall, cpu = (sum(node[key] for node in nodes.values()) for key in ("seconds", "cpu_seconds"))
        peak = max(node["peak_memory_mb"] for node in nodes.values())
        return replace(measured, work=Work(self._rows, wall, cpu, peak))

    def cpu(self, node: str) -> Spread:
        """Return the CPU-seconds of a node."""
        return Spread.of(round_[node]["cpu_seconds"] for round_ in self._nodes)

    def facts(self, name: str) -> Facts:
        """Return CPU-seconds, seconds and memory of all nodes."""
        return {
            f"{name}, {node}": f"{self.cpu(node)} CPU-s, {self._spread(node, 'seconds')} s, "
            f"{self._spread(node, 'peak_memory_mb')} MiB"
            for node in DATA_PATH
        }

    def _spread(self, node: str, key: str) -> Spread:
        return Spread.of(round_[node][key] for round_ in self._nodes)


class _Plain:
    """A side that does the same work without a pipeline."""

    def __init__(self, folder: Path, trips: Path, rows: int) -> None:
        self._log, self._rows = folder.parent / f"{folder.name}.log", rows
        self._command = [sys.executable, "-m", "benchmarks.plain_program", str(trips)]

    def run(self, number: int) -> Measurement:
        """Run the program once."""
        return measure.run(self._command, self._log, self._rows)

    def facts(self, name: str) -> Facts:
        """Return no facts, because the table has all figures."""
        return {}


_Side = _Pipeline | _Plain


def _name(side: str, rows: int) -> str:
    return f"{side}, {rows:,} rows"


def _sides(folder: Path, rows: int, stock: bool) -> dict[str, _Side]:
    trips = _trips(folder, rows)
    sides: dict[str, _Side] = {
        _name("ours", rows): _Pipeline(folder / f"ours{rows}", trips, rows),
        _name("plain", rows): _Plain(folder / f"plain{rows}", trips, rows),
    }
    if stock:
        settings = ["runtime.vectorised=false"]
        sides[_name("TFX's executors", rows)] = _Pipeline(folder / f"stock{rows}", trips, rows, settings)
    return sides


def _cores(folder: Path, rows: int) -> dict[str, _Pipeline]:
    trips = _trips(folder, rows)
    return {
        name: _Pipeline(folder / name.split()[0], trips, rows, prefix=("taskset", "-c", cores))
        for name, cores in {"two cores": "0,1", "one core": "0"}.items()
    }


def _trips(folder: Path, rows: int) -> Path:
    path = folder / f"rows-{rows}" / "trips.csv"
    arguments = [] if rows == ROWS[0] else ["--rows", str(rows)]
    subprocess.run([sys.executable, "-m", taxi.__name__, *arguments, "--output", str(path)], check=True)
    return path


def _per_row(sides: Mapping[str, _Side]) -> Facts:
    """Return the marginal cost of a row and the fixed cost of a run, from the smallest and the largest table."""
    facts: Facts = {}
    for kind in ("ours", "TFX's executors"):
        pipelines = [side for name, side in sides.items() if name.startswith(kind) and isinstance(side, _Pipeline)]
        if len(pipelines) < 2:
            continue
        for node in DATA_PATH:
            small, large = (
                (side.evaluated if node == "Evaluator" else side._rows, side.cpu(node).median)
                for side in (pipelines[0], pipelines[-1])
            )
            slope = (large[1] - small[1]) / (large[0] - small[0])
            fixed = small[1] - slope * small[0]
            rows = "evaluated row" if node == "Evaluator" else "row"
            facts[f"{kind}, {node}"] = f"{slope * 1e6:.1f} CPU-µs per {rows} and {fixed:.1f} CPU-s besides"
    return facts


if __name__ == "__main__":
    main()
