"""Measure the time from a new table to a pushed, checked model: `init`, and a run of the config that it has written.

python -m benchmarks.init_run [--rows 30_000] [--tables taxi,census] [--rounds 3] [--budget 60]

Each round starts without config, artifacts and metadata. Without --rows, a table has its own size, see
benchmarks/init_tables.py, and the results are recorded as `init_shapes`. If a table has fewer than --rows rows, rows
are drawn with replacement.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure
from benchmarks.init_tables import Sample, census, many_categories, many_classes, taxi, wide

_TABLES: dict[str, Callable[[], Sample]] = {
    "taxi": taxi,
    "census": census,
    "many_categories": many_categories,
    "wide": wide,
    "many_classes": many_classes,
}
_WANTED = 120.0
"""Target for the seconds from `init` to the pushed model, for 30,000 rows on 2 cores."""


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--tables", default=",".join(_TABLES), help=f"some of {', '.join(_TABLES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of init for fitting kinds of models")
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    facts: measure.Facts = {}
    for name in options.tables.split(","):
        sample = _TABLES[name]()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            rows = sample.rows
            if options.rows:
                rows = rows.sample(options.rows, replace=len(rows) < options.rows, random_state=0)
            facts[f"{name}: rows, columns"] = f"{len(rows):,}, {rows.shape[1]:,}"
            rows.to_csv(folder / f"{name}.csv", index=False)
            rounds = [
                _round(folder / str(number), folder / f"{name}.csv", sample, options.budget)
                for number in range(options.rounds)
            ]
        measured[f"{name}: init"], measured[f"{name}: run"] = ([round_[side] for round_ in rounds] for side in (0, 1))
        wall_times = measure.Spread.of(init.wall + run.wall for init, run in rounds)
        facts[f"{name}: seconds from init to the pushed model (wanted: at most {_WANTED:g})"] = wall_times
        facts[f"{name}: CPU-seconds of both"] = measure.Spread.of(init.cpu + run.cpu for init, run in rounds)
    size = f"--rows {options.rows} " if options.rows else ""
    command = (
        f"python -m benchmarks.init_run {size}--tables {options.tables} --rounds {options.rounds} "
        f"--budget {options.budget:g}"
    )
    print(measure.record("init_run" if options.rows else "init_shapes", command, measured, facts))


def _round(folder: Path, table: Path, sample: Sample, budget: float) -> tuple[measure.Measurement, measure.Measurement]:
    """Run `init` and the pipeline; return both measurements."""
    folder.mkdir()
    config, arguments = (
        str(folder / "config.yaml"),
        ["--data", str(table), "--label", sample.label, "--budget", str(budget), "--keep", *sample.rows.columns],
    )
    drafted = _run(
        folder / "init.log", "init", *arguments, "--config", config, "--schema", str(folder / "schema.pbtxt")
    )
    ran = _run(folder / "run.log", "--local", "--json", "--config", config, "--output", str(folder / "out"))
    pushed = json.loads((folder / "run.log").read_text().splitlines()[-1])["pushed"]
    if not pushed:
        raise RuntimeError(f"nothing was pushed: {folder / 'run.log'}")
    return drafted, ran


def _run(log: Path, *arguments: str) -> measure.Measurement:
    return measure.run([sys.executable, "runner.py", *arguments], log)


if __name__ == "__main__":
    main()
