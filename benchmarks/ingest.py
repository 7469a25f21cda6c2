"""Compare ingest with TFX's ExampleGens, with ten times the rows, and with the libraries that it uses.

python -m benchmarks.ingest csv|parquet|scaling|floor [--rounds 5] [--rows 300_000]

- `csv`: our ExampleGen with all functions (splits, inferred types, quarantine, gzip), the same with Parquet as output,
  and TFX's CsvExampleGen.
- `parquet`: the same rows as Parquet, and TFX's Parquet executor.
- `scaling`: only ours, on the CSV rows and on ten times as many rows, with one worker and with two.
- `floor`: ours, only pyarrow's readers on the same files, and only the gzip writer on the bytes that ours has written.

The rows are generated taxi trips (`python -m data.taxi --rows N`). Each side is a process (ingest_program.py). The
first output of a side is read back to check that it has all rows. The columns with `work` measure only the call of the
executor's `Do`, which is the cost of a node in a run, because a run imports once. The other columns measure the whole
process, including imports.
"""

from __future__ import annotations

import argparse
import gzip
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements, Spread
from data import taxi
from data.output import positive
from pipeline.orchestration.engines import FORKED

_TIMES = 10
"""Ratio of the numbers of rows of the large and the small table of `scaling`."""
_FEW = 1_000
"""Rows of the table that shows the fixed cost of ingest, which is mostly the start and end of Beam."""
_CHUNK = 1 << 22
_FRAME = 16
"""Bytes of a TFRecord in addition to its data: the length (8) and the checksums of length (4) and data (4)."""


@dataclass(frozen=True)
class Examples:
    """The examples in a folder.

    Attributes:
      rows: Number of examples.
      bytes: Uncompressed size as TFRecords or columns.
      stored: Size on the disk, in bytes.
    """

    rows: int
    bytes: int
    stored: int

    @classmethod
    def at(cls, folder: Path) -> Examples:
        """Count the records of all splits.

        Raises:
          ValueError: A file ends within a record.
        """
        rows = size = stored = 0
        for path in sorted(folder.glob("Split-*/*.parquet")):
            # Imported here because most sides do not need it in this process.
            from pyarrow import parquet

            metadata = parquet.read_metadata(path)
            rows += metadata.num_rows
            size += sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
            stored += path.stat().st_size
        for path in sorted(folder.glob("Split-*/*.gz")):
            stored += path.stat().st_size
            with gzip.open(path) as file:
                pending = b""
                while chunk := file.read(_CHUNK):
                    size += len(chunk)
                    pending += chunk
                    at = 0
                    while (end := at + _FRAME + int.from_bytes(pending[at : at + 8], "little")) <= len(pending):
                        at = end
                        rows += 1
                    pending = pending[at:]
            if pending:
                raise ValueError(f"{path}: {len(pending)} bytes of a record that is cut off")
        return cls(rows, size, stored)


@dataclass(frozen=True)
class Bench:
    """Settings of the benchmark.

    Attributes:
      data: Folder of the tables.
      scratch: Folder of the outputs.
      rounds: Number of runs per side.
      warm_up: Number of additional rounds before, which do not count.
    """

    data: Path
    scratch: Path
    rounds: int
    warm_up: int

    def table(self, rows: int, suffix: str) -> Path:
        """Return the path of a CSV or Parquet file with simulated trips; write the file if it does not exist."""
        path = self.data / f"rows-{rows}-seed-0" / f"trips.{suffix}"
        command = [sys.executable, "-m", "data.taxi", "--rows", str(rows), "--output", str(path)]
        # A separate process keeps the memory of this process small.
        print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout, end="", file=sys.stderr)
        return path

    def output(self, name: str) -> Path:
        """Return the folder with the examples of the last run of a side."""
        return self.scratch / name.replace(" ", "-").replace(",", "")

    def side(self, name: str, side: str, source: Path, rows: int, workers: int = 1) -> Callable[[int], Measurement]:
        """Return a function that runs a side once, and checks in its first run that it has written all rows."""
        output = self.output(name)
        beam = [f"--direct_num_workers={workers}"]
        if workers > 1:
            beam.append(f"--runner={FORKED}")
        command = [sys.executable, "-m", "benchmarks.ingest_program", side, str(source), str(output), *beam]
        # Check only the first run of a side, because counting unpacks every example.
        checked = not side.startswith(("ours", "stock"))

        def run(_number: int) -> Measurement:
            nonlocal checked
            shutil.rmtree(output, ignore_errors=True)
            measured = measure.run(command, output.with_suffix(".log"), rows)
            if not checked and (row_count := Examples.at(output).rows) != rows:
                raise RuntimeError(f"{name}: expected {rows} examples, received {row_count}")
            checked = True
            return measured

        return run

    def measure(self, sides: Mapping[str, Callable[[int], Measurement]]) -> dict[str, list[Measurement]]:
        """Run the sides in turns."""
        return measure.in_turns(sides, self.rounds, self.warm_up)


def csv(bench: Bench, rows: int) -> tuple[Measurements, Facts]:
    """Compare ours with TFX's CsvExampleGen."""
    return _against_stock(bench, rows, "csv", wanted=25)


def parquet(bench: Bench, rows: int) -> tuple[Measurements, Facts]:
    """Compare ours with TFX's Parquet executor."""
    return _against_stock(bench, rows, "parquet", wanted=40)


def _against_stock(bench: Bench, rows: int, suffix: str, wanted: int) -> tuple[Measurements, Facts]:
    table = bench.table(rows, suffix)
    measured = bench.measure(
        {
            "stock TFX": bench.side("stock TFX", f"stock-{suffix}", table, rows),
            "ours": bench.side("ours", "ours", table, rows),
            "ours, Parquet": bench.side("ours, Parquet", "ours-columns", table, rows),
        }
    )
    stock, ours, columns = measured.values()
    written = {name: Examples.at(bench.output(name)) for name in measured}
    return measured, {
        "rows": rows,
        f"CPU-seconds per row, stock / ours (wanted: at least {wanted})": measure.ratio(stock, ours, "work.cpu"),
        "time, stock / ours": measure.ratio(stock, ours, "work.wall"),
        "CPU-seconds of the whole process, stock / ours": measure.ratio(stock, ours, "cpu"),
        "peak memory, ours / stock": measure.ratio(ours, stock, "peak_mb"),
        "examples on the disk, ours / stock": round(written["ours"].stored / written["stock TFX"].stored, 3),
        "CPU-seconds, ours with Parquet as output / with TFRecords": measure.ratio(columns, ours, "work.cpu"),
        "examples on the disk, Parquet / TFRecords": round(written["ours, Parquet"].stored / written["ours"].stored, 3),
    }


def scaling(bench: Bench, rows: int) -> tuple[Measurements, Facts]:
    """Measure ours on a table and on a table of ten times the size, with one worker and with two."""
    sides = {}
    names = {}
    for count in (rows, rows * _TIMES):
        table = bench.table(count, "csv")
        for workers in (1, 2):
            name = f"{count:,} rows, {workers} worker{'s' if workers > 1 else ''}"
            names[count, workers] = name
            sides[name] = bench.side(name, "ours", table, count, workers)
    measured = bench.measure(sides)
    small, large = measured[names[rows, 1]], measured[names[rows * _TIMES, 1]]
    twice = measured[names[rows * _TIMES, 2]]
    return measured, {
        "runner with two workers": FORKED,
        "time, ten times the rows (wanted: at most 11)": measure.ratio(large, small, "work.wall"),
        "CPU-seconds, ten times the rows": measure.ratio(large, small, "work.cpu"),
        "peak memory, ten times the rows (wanted: at most 1.2)": measure.ratio(large, small, "work.peak_mb"),
        "peak memory on the large table, MB (wanted: below 1,200)": _megabytes(large, "work.peak_mb"),
        "peak memory of the tree on the large table with two workers, MB": _megabytes(twice, "peak_mb"),
        "time on the large table, one worker / two (wanted: at least 1.7)": measure.ratio(large, twice, "work.wall"),
    }


def _megabytes(side: Sequence[Measurement], key: str) -> int:
    return round(max(measure.figures(side, key)) * 2**20 / 1e6)


def floor(bench: Bench, rows: int) -> tuple[Measurements, Facts]:
    """Compare ours with the two steps that every ingest needs: reading the file once, and compressing the examples."""
    tables = {title: bench.table(rows, suffix) for title, suffix in (("CSV", "csv"), ("Parquet", "parquet"))}
    sides = {}
    for title, table in tables.items():
        name = f"ours, {title}"
        sides[name] = bench.side(name, "ours", table, rows)
        sides[f"reader, {title}"] = bench.side("reader", f"read-{title.lower()}", table, rows)
        sides[f"gzip writer, {title}"] = bench.side("gzip", "gzip", bench.output(name), rows)
        few = bench.table(_FEW, table.suffix[1:])
        sides[f"ours, {title}, few rows"] = bench.side("ours, few rows", "ours", few, _FEW)
    measured = bench.measure(sides)
    facts: Facts = {"rows": rows}
    for title, table in tables.items():
        ours, reader, writer, few_rows = (
            measure.figures(measured[side], "work.cpu")
            for side in (f"ours, {title}", f"reader, {title}", f"gzip writer, {title}", f"ours, {title}, few rows")
        )
        written = Examples.at(bench.output(f"ours, {title}"))
        rounds = list(zip(ours, reader, writer, few_rows, strict=True))
        facts |= {
            f"{title}: CPU-seconds of the floor (reader + gzip writer) / ours": Spread.of(
                (read + packed) / whole for whole, read, packed, _ in rounds
            ),
            f"{title}: of which the reader": Spread.of(read / whole for whole, read, _, _ in rounds),
            f"{title}: of which the gzip writer": Spread.of(packed / whole for whole, _, packed, _ in rounds),
            f"{title}: CPU-seconds for {_FEW:,} rows / ours": Spread.of(few / whole for whole, _, _, few in rounds),
            f"{title}: the reader's rate, MB of the file per CPU-second": _rate(table.stat().st_size, reader),
            f"{title}: the gzip writer's rate, MB of TFRecords per CPU-second": _rate(written.bytes, writer),
            f"{title}: our rate, MB of the file per CPU-second": _rate(table.stat().st_size, ours),
        }
    return measured, facts


def _rate(size: int, seconds: Sequence[float]) -> Spread:
    return Spread.of(size / 1e6 / value for value in seconds)


BENCHMARKS: dict[str, Callable[[Bench, int], tuple[Measurements, Facts]]] = {
    "csv": csv,
    "parquet": parquet,
    "scaling": scaling,
    "floor": floor,
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="runs of each side")
    parser.add_argument("--warm-up", type=int, default=0, help="additional rounds before, which do not count")
    parser.add_argument("--rows", type=positive, default=300_000, help="rows of the table; scaling also uses 10 times")
    parser.add_argument("--data", type=Path, default=taxi.DEFAULT_OUTPUT.parent, help="folder of the tables")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.data, Path(scratch), options.rounds, options.warm_up)
        measured, facts = BENCHMARKS[options.benchmark](bench, options.rows)
    command = f"python -m benchmarks.ingest {shlex.join(arguments)}"
    print(measure.record(f"ingest_{options.benchmark}", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
