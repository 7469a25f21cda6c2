"""Copy the taxi example's data, 15,002 real Chicago trips, or simulate any number of trips from them.

    python -m data.taxi                       the real trips, to data/taxi/trips.csv
    python -m data.taxi --rows 10_000_000     simulated trips, to a folder below data/taxi/

The real trips are part of the installed TFX package, so nothing is downloaded. data/README.md describes each column.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from data import tfx_files
from data.output import finish, positive

DEFAULT_OUTPUT = Path("data/taxi/trips.csv")
_IN_PACKAGE = "examples/chicago_taxi_pipeline/data/simple/data.csv"


def find_real_trips() -> Path:
    """Return the CSV file of the real trips in the installed TFX package, without importing TFX."""
    return tfx_files.find(_IN_PACKAGE, "the real trips")


def copy(output: Path) -> str:
    """Copy the real trips to `output` unless they exist; return a line for the terminal."""
    started = time.perf_counter()
    if not tfx_files.copy(find_real_trips(), output):
        return f"{output}: already exists, nothing to do"
    rows = output.read_bytes().count(b"\n") - 1
    return f"{output}: {rows:,} rows, {output.stat().st_size:,} bytes, {time.perf_counter() - started:.2f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.taxi", description="Copy or simulate Chicago taxi trips.")
    parser.add_argument("--rows", type=positive, help="number of trips to simulate (default: copy the real trips)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (default: 0)")
    parser.add_argument(
        "--output", type=Path, help=f"file to write (default: {DEFAULT_OUTPUT}); with --rows, .parquet as well"
    )
    args = parser.parse_args(arguments)
    if args.rows is None:
        return finish(lambda: copy(args.output or DEFAULT_OUTPUT))

    # Imported here because pyarrow and numpy take most of a second, and the copy does not need them.
    from data.bootstrap import make

    output = args.output or DEFAULT_OUTPUT.parent / f"rows-{args.rows}-seed-{args.seed}" / DEFAULT_OUTPUT.name
    return finish(lambda: make(find_real_trips(), args.rows, args.seed, output))


if __name__ == "__main__":
    sys.exit(main())
