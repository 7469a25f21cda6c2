"""Measure the verbs that read metadata, and their web pages, on a store of 1,000 runs with 20 artifacts per run.

python -m benchmarks.history [--runs 1000] [--rounds 5]

Whole commands are measured, from the start of Python to the last line. `runs serve` is ended after one page, and the
page is measured separately. For comparison, "library" lists the same runs with the states of their nodes through ML
Metadata's library, which is less than `runs` prints.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import history_store, measure

_WANTED = {"runs": 1.0, "lineage": 1.0, "the first page of runs serve": 1.0}
"""Targets in seconds for a store of 1,000 runs."""


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "metadata.db"
        history_store.write(store, options.runs)
        middle = f"run-{options.runs // 2:06}"
        verbs = {
            "runs": ["runs"],
            "runs, all": ["runs", "--limit", "0"],
            "show": ["runs", "show", middle],
            "lineage": ["store", "lineage", f"version:{options.runs // 2}"],
            "why-not-cached": ["runs", "why-not-cached", "Trainer"],
            "export": ["store", "export", "--into", f"{scratch}/all.jsonl"],
            "site": ["runs", "site", "--into", f"{scratch}/site"],
        }
        commands = {name: ["runner.py", *words, "--store", str(store)] for name, words in verbs.items()}
        commands["library"] = ["-m", "benchmarks.history_program", str(store)]
        log = Path(scratch) / "log"
        sides = {name: _side([sys.executable, *words], log) for name, words in commands.items()}
        page = [sys.executable, "-m", "benchmarks.history_page", str(store)]
        sides["runs serve"] = lambda _: measure.run(page, log, options.runs)
        measured = measure.in_turns(sides, options.rounds)
    facts: measure.Facts = {"runs": options.runs, "artifacts": options.runs * 20}
    pages = measured["runs serve"]
    facts["the first page of runs serve by itself, in seconds"] = measure.Spread.of(measure.figures(pages, "work.wall"))
    measured["runs serve"] = [replace(measurement, work=None) for measurement in pages]
    for name, seconds in _WANTED.items():
        facts[f"{name}: wanted"] = f"at most {seconds:g} s"
    facts["library's wall time over that of all runs"] = str(measure.ratio(measured["library"], measured["runs, all"]))
    command = f"python -m benchmarks.history --runs {options.runs} --rounds {options.rounds}"
    print(measure.record("history", command, measured, facts))


def _side(command: list[str], log: Path) -> Callable[[int], measure.Measurement]:
    return lambda _: measure.run(command, log)


if __name__ == "__main__":
    main()
