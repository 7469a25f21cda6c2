"""Measure the cost per column: tables of many shapes through the whole pipeline, and through a single program.

    python -m benchmarks.columns                                     all shapes; some hours on two cores
    python -m benchmarks.columns --shape 5000x200 5000x800           some of them
    python -m benchmarks.columns --shape 5000x200 --rows 1000        with another number of rows
    python -m benchmarks.columns --peers                             LightGBM's loading of the CSV as well

Every run starts with a CSV file and ends with a pushed version, with 50 training steps of 512 rows in one process. The
figures of a node include its process and the processes that it starts, but not the imports, which happen once in the
fork server. A second run, where every node is cached, shows the cost of the imports and of cached nodes. The floor
(`benchmarks.columns_program`) does the same work for one table, without types, schema, gates, intervals, slices,
artifacts or restarts; its figures do not include imports. TensorFlow alone (`benchmarks.columns_model`) loads the
pushed model and calls each of its signatures once, which two processes of a run have to do. `--peers` needs
`tools/environment.sh quality`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import measure
from benchmarks.columns_tables import BATCH, SHAPES, STEPS, Shape, settings, write_config
from benchmarks.measure import Facts, Measurement, Spread, Work
from data.output import positive

PEER = Path(".cache/quality/bin/python")
"""Interpreter of an environment with LightGBM."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES), help="tables (default: all)")
    parser.add_argument("--rows", type=positive, help="rows of each table (default: as the shape says)")
    parser.add_argument("--repeat", type=positive, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--peers", action="store_true", help="measure LightGBM's loading as well")
    options = parser.parse_args(arguments)
    measured: dict[str, list[Measurement]] = {}
    facts: Facts = {}
    for name in options.shape:
        # One shape at a time: the largest table and its artifacts take more than 10 GB.
        with tempfile.TemporaryDirectory() as scratch:
            of_shape = _measure(name, Path(scratch), options.rows or SHAPES[name].rows, options.repeat, options.peers)
        measured |= of_shape[0]
        facts |= of_shape[1]
    facts |= _growth(measured)
    command = " ".join(["python -m benchmarks.columns", *(sys.argv[1:] if arguments is None else arguments)])
    name = "columns" if options.shape == list(SHAPES) else "columns_" + "_".join(options.shape)
    print(measure.record(name, command, measured, facts))


def _measure(
    name: str, folder: Path, rows: int, repeat: int, peers: bool
) -> tuple[dict[str, list[Measurement]], Facts]:
    """Run the sides of a shape in turns.

    Args:
      name: Name of the shape.
      folder: Folder for the table and all output.
      rows: Number of rows.
      repeat: Number of runs per side.
      peers: Whether to run LightGBM.

    Returns:
      Measurements by side, and the figures to report.
    """
    shape, table = SHAPES[name], folder / "table.csv"
    shape.write(table, rows)
    ours = Pipeline(folder, table, rows, write_config(name, shape, table, folder))
    sides = {f"ours, {name}": ours.run}
    sides[f"TensorFlow alone, {name}"] = _PushedModel(folder, rows).run
    if shape.has_floor:
        sides[f"floor, {name}"] = _Program(folder, rows, _floor(table, shape, folder)).run
    # LightGBM reads only numbers.
    if peers and shape.label == "y":
        command = [str(PEER), str(Path(__file__).with_name("columns_lightgbm.py")), str(table), shape.label]
        sides[f"LightGBM's loading, {name}"] = _Program(folder, rows, command).run
    measured = measure.in_turns(sides, repeat)
    facts: Facts = {f"{name}: MB of the table": round(table.stat().st_size / 1e6)}
    facts |= ours.facts(name)
    if shape.has_floor:
        ours_runs, floor = measured[f"ours, {name}"], measured[f"floor, {name}"]
        facts[f"{name}: ours / floor, CPU-seconds without imports"] = measure.ratio(ours_runs, floor, "work.cpu")
    return measured, facts


def _floor(table: Path, shape: Shape, folder: Path) -> list[str]:
    arguments = [table, shape.label, STEPS, BATCH, json.dumps(shape.floor), folder / "floor"]
    return [sys.executable, "-m", "benchmarks.columns_program", *map(str, arguments)]


def _growth(measured: measure.Measurements) -> Facts:
    """Return how the cost grows with the columns, and the memory with the rows, if both shapes were run."""
    facts: Facts = {}
    for few, many, key, title in (
        ("5000x200", "5000x800", "work.cpu", "CPU-seconds, 800 columns / 200 columns"),
        ("300MB", "3GB", "work.peak_mb", "peak memory of a node, 3 GB / 300 MB"),
    ):
        pair = [f"ours, {few}", f"ours, {many}"]
        if all(name in measured for name in pair):
            facts[title] = measure.ratio(measured[pair[1]], measured[pair[0]], key)
    return facts


class _Program:
    """A side that is a program, which reports its work."""

    def __init__(self, folder: Path, rows: int, command: Sequence[str]) -> None:
        self._log, self._rows, self._command = folder / "program.log", rows, command

    def run(self, number: int) -> Measurement:
        """Run the program once."""
        return measure.run(self._command, self._log, self._rows)


class _PushedModel:
    """The side that uses the version which the pipeline has pushed in the same round."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self._rows = folder, rows

    def run(self, number: int) -> Measurement:
        """Load the newest version, and call its signatures."""
        newest = max(self._folder.glob("out/*/pushed/[0-9]*"), key=lambda version: int(version.name))
        command = [sys.executable, "-m", "benchmarks.columns_model", str(newest)]
        return measure.run(command, self._folder / "program.log", self._rows)


class Pipeline:
    """The side that runs the pipeline twice. In the second run, every node is cached.

    Args:
      folder: Folder for output and logs.
      table: The CSV file.
      rows: Number of rows in the table.
      config: Config to run.
    """

    def __init__(self, folder: Path, table: Path, rows: int, config: Path) -> None:
        self._folder, self._rows = folder, rows
        sets = [word for setting in settings(table) for word in ("--set", setting)]
        options = ["--config", str(config), "--output", str(folder / "out"), "--json"]
        self._command = [sys.executable, "runner.py", "--local", *options, *sets]
        self._nodes: list[Mapping[str, Mapping[str, float]]] = []
        self._besides: list[float] = []
        self._cached: list[tuple[float, float]] = []

    def run(self, number: int) -> Measurement:
        """Run the pipeline from nothing, then again; the work is all nodes of the first run."""
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        measured, nodes = self._run_once()
        again, cached = self._run_once()
        self._nodes.append(nodes)
        wall, cpu = (sum(node[key] for node in nodes.values()) for key in ("seconds", "cpu_seconds"))
        self._besides.append(measured.cpu - cpu)
        self._cached.append((again.cpu, sum(node["cpu_seconds"] for node in cached.values())))
        peak = max(node["peak_memory_mb"] for node in nodes.values())
        return replace(measured, work=Work(self._rows, round(wall, 3), round(cpu, 3), peak))

    def _run_once(self) -> tuple[Measurement, Mapping[str, Mapping[str, float]]]:
        log = self._folder / "run.log"
        measured = measure.run(self._command, log)
        return measured, json.loads(log.read_text().splitlines()[-1])["nodes"]

    def facts(self, name: str) -> Facts:
        """Return the CPU-seconds and peak memory of all nodes, and the CPU-seconds outside of nodes."""
        facts: Facts = {}
        for node in self._nodes[0]:
            cpu, memory = (
                Spread.of(nodes[node][key] for nodes in self._nodes) for key in ("cpu_seconds", "peak_memory_mb")
            )
            facts[f"{name}, {node}"] = f"{cpu} CPU-s, {memory} MiB"
        facts[f"{name}: CPU-seconds besides the nodes (imports, runner)"] = Spread.of(self._besides)
        facts[f"{name}: CPU-seconds of a run in which every node is cached"] = Spread.of(cpu for cpu, _ in self._cached)
        facts[f"{name}: CPU-seconds of its nodes, which do nothing"] = Spread.of(cpu for _, cpu in self._cached)
        return facts


if __name__ == "__main__":
    main()
