"""Copy the taxi example's data, 15,002 real Chicago trips, or simulate any number of trips from them.

    python -m data.taxi                       the real trips, to data/taxi/trips.csv
    python -m data.taxi --rows 10_000_000     as many simulated ones, to a folder below data/taxi/

The real trips are in the installed TFX package, so nothing is downloaded. data/README.md describes each column.
"""

from __future__ import annotations

import argparse
import filecmp
import importlib.util
import shutil
import sys
import time
from pathlib import Path

from components.errors import InputError
from data.output import atomic, finish, positive

DEFAULT_OUTPUT = Path("data/taxi/trips.csv")
_IN_PACKAGE = "examples/chicago_taxi_pipeline/data/simple/data.csv"


def real_trips() -> Path:
    """Return the CSV file of the real trips in the installed TFX package, without importing TFX."""
    package = importlib.util.find_spec("tfx")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (path := Path(folder, _IN_PACKAGE)).is_file():
            return path
    raise InputError(
        f"the real trips were not found: expected an installed tfx package with {_IN_PACKAGE}",
        "set up the project's environment and use its Python: make run does both",
    )


def copy(output: Path) -> str:
    """Copy the real trips to `output`, unless they are there; return a line for the terminal."""
    source = real_trips()
    started = time.perf_counter()
    if output.is_file() and filecmp.cmp(source, output, shallow=False):
        return f"{output}: is there already, nothing to do"
    with atomic(output) as part:
        shutil.copyfile(source, part)
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
