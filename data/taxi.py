"""Copy the taxi example's data, 15,002 real Chicago trips, or simulate any number of trips from them.

    python -m data.taxi                       the real trips, to data/taxi/trips.csv
    python -m data.taxi --rows 10_000_000     as many simulated ones, to a folder below data/taxi/

The real trips are in the installed TFX package, so nothing is downloaded. data/README.md describes each column.
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


def real_trips() -> Path:
    """Return the CSV file of the real trips in the installed TFX package, without importing TFX."""
    return tfx_files.find(_IN_PACKAGE, "the real trips")


def copy(output: Path) -> str:
    """Copy the real trips to `output`, unless they are there; return a line for the terminal."""
    started = time.perf_counter()
    if not tfx_files.copy(real_trips(), output):
        return f"{output}: is there already, nothing to do"
    rows = output.read_bytes().count(b"\n") - 1
    return f"{output}: {rows:,} rows, {output.stat().st_size:,} bytes, {time.perf_counter() - started:.2f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.taxi", description="Bring or make Chicago taxi trips.")
    parser.add_argument("--rows", type=positive, help="make this many trips from the real ones (default: copy those)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other trips (default: 0)")
    parser.add_argument(
        "--output", type=Path, help=f"the file to write (default: {DEFAULT_OUTPUT}); .parquet too, with --rows"
    )
    args = parser.parse_args(arguments)
    if args.rows is None:
        return finish(lambda: copy(args.output or DEFAULT_OUTPUT))

    # Imported only here: pyarrow and numpy take most of a second, and the copy does not need them.
    from data.bootstrap import make

    made = args.output or DEFAULT_OUTPUT.parent / f"rows-{args.rows}-seed-{args.seed}" / DEFAULT_OUTPUT.name
    return finish(lambda: make(real_trips(), args.rows, args.seed, made))


if __name__ == "__main__":
    sys.exit(main())
