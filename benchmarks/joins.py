"""Compare joins of ExampleGen with pandas.merge and pandas.merge_asof, in CPU-seconds and memory.

python -m benchmarks.joins [--rows 1_000_000] [--side-rows 5_000_000] [--rounds 3]

The rows of the data have a zone, a station, a user and a time. `small` joins 10,000 zones by an integer, `past` joins
the newest of 200,000 rows of 100 stations, and `large` joins a table of `--side-rows` users by a text, in memory and on
disk. ExampleGen reads, joins, splits and writes Parquet; pandas reads, joins and writes Parquet. `none` is ExampleGen
without a join. The first round checks that both have the same sum of a joined column.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from benchmarks import measure
from benchmarks.measure import Facts, Measurement
from data.output import positive

_ZONES, _STATIONS, _PAST, _SECONDS = 10_000, 100, 200_000, 30 * 86_400
SIDES = {
    "none, ours": ("ours", "none"),
    "small, ours": ("ours", "small"),
    "small, pandas": ("pandas", "small"),
    "past, ours": ("ours", "past"),
    "past, pandas": ("pandas", "past"),
    "large, ours in memory": ("ours", "large"),
    "large, ours on disk": ("disk", "large"),
    "large, pandas": ("pandas", "large"),
}
"""Name → program and join; see benchmarks.joins_program."""
_CHECKED = {"small": "size", "past": "temperature", "large": "spent"}
"""Join → column whose sum is compared."""


def write_tables(folder: Path, rows: int, side_rows: int) -> None:
    """Write the tables to a folder, from a fixed seed."""
    random = np.random.default_rng(0)

    def make_users(numbers: npt.NDArray[np.int64]) -> pa.Array:
        return pc.binary_join_element_wise("user-", pc.cast(pa.array(numbers), pa.string()), "")

    tables = {
        "rows": {
            "label": random.integers(0, 2, rows),
            "zone": random.integers(0, _ZONES + 500, rows),
            "station": random.integers(0, _STATIONS, rows),
            "user": make_users(random.integers(0, side_rows + side_rows // 20, rows)),
            "time": random.integers(0, _SECONDS, rows),
            **{f"x{number}": random.normal(size=rows) for number in range(4)},
        },
        "small": {
            "zone": random.permutation(_ZONES),
            "size": random.normal(size=_ZONES),
            "kind": np.array(["a", "b", "c"])[random.integers(0, 3, _ZONES)],
        },
        "past": {
            "station": random.integers(0, _STATIONS, _PAST),
            "time": random.integers(0, _SECONDS, _PAST),
            "temperature": random.normal(size=_PAST),
        },
        "large": {
            "user": make_users(random.permutation(side_rows)),
            "spent": random.normal(size=side_rows),
            "visits": random.integers(0, 1000, side_rows),
        },
    }
    for name, columns in tables.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=1 << 17)


def sum_column(folder: Path, name: str) -> float:
    """Return the sum of a column of all files below a folder; a column of examples has a list per row."""
    total = 0.0
    for path in folder.rglob("*.parquet"):
        column = parquet.read_table(path, columns=[name])[name].combine_chunks()
        values = column if pa.types.is_floating(column.type) else pc.list_flatten(column)
        total += pc.sum(values.cast(pa.float64())).as_py() or 0.0
    return total


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joins", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=3, help="runs of each side")
    parser.add_argument("--rows", type=positive, default=1_000_000, help="rows of the data")
    parser.add_argument("--side-rows", type=positive, default=5_000_000, help="rows of the large side table")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch, "data")
        data.mkdir()
        write_tables(data, options.rows, options.side_rows)
        sums: dict[str, float] = {}

        def make_side(name: str) -> Callable[[int], Measurement]:
            program, join = SIDES[name]
            output = Path(scratch, "output")
            command = [sys.executable, "-m", "benchmarks.joins_program", program, join, str(data), str(output)]

            def run(number: int) -> Measurement:
                shutil.rmtree(output, ignore_errors=True)
                measured = measure.run(command, Path(scratch, "side.log"), options.rows)
                if number == 0 and join in _CHECKED:
                    total = sum_column(output, _CHECKED[join])
                    # Examples have float32 values.
                    if abs(total - sums.setdefault(join, total)) > 1e-6 * options.rows:
                        raise RuntimeError(f"{name}: expected the sum {sums[join]}, received {total}")
                return measured

            return run

        measured = measure.in_turns({name: make_side(name) for name in SIDES}, options.rounds)
        sizes = {name: (data / f"{name}.parquet").stat().st_size >> 20 for name in ("rows", "large")}
    facts: Facts = {"rows": options.rows, "rows of the large side table": options.side_rows}
    facts |= {f"MiB of {name}.parquet": size for name, size in sizes.items()}
    cpu = "work.cpu"
    for join in _CHECKED:
        ours = measured["large, ours in memory" if join == "large" else f"{join}, ours"]
        facts[f"{join}: CPU-seconds, pandas / ours"] = measure.ratio(measured[f"{join}, pandas"], ours, cpu)
        facts[f"{join}: CPU-seconds, ours / ours without a join"] = measure.ratio(ours, measured["none, ours"], cpu)
    on_disk, in_memory = measured["large, ours on disk"], measured["large, ours in memory"]
    facts["large: CPU-seconds, on disk / in memory"] = measure.ratio(on_disk, in_memory, cpu)
    facts["large: peak memory, on disk / in memory"] = measure.ratio(on_disk, in_memory, "work.peak_mb")
    facts["large: peak memory, on disk / pandas"] = measure.ratio(on_disk, measured["large, pandas"], "work.peak_mb")
    command = f"python -m benchmarks.joins {shlex.join(arguments)}"
    print(measure.record("joins", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
