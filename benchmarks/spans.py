"""Measure Transform on the newest spans, with and without a run on the preceding spans.

    python -m benchmarks.spans

The simulated taxi trips (`python -m data.taxi --rows N`) are divided into eight spans with a CSV file each. A run reads
seven spans, so that a run for the newest span reads one new span and six spans that the preceding run has read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Spread, Work
from data import taxi

_SPANS = 8
_ROWS = 140_000
_ROUNDS = 3


def main() -> None:
    """Measure, print the table and write it to results/."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        header, *trips = _trips(folder).read_text().splitlines(keepends=True)
        for span in range(1, _SPANS + 1):
            path = folder / f"spans/{span}/trips.csv"
            path.parent.mkdir(parents=True)
            path.write_text(header + "".join(trips[(span - 1) * _ROWS : span * _ROWS]))
        cpu: dict[str, list[float]] = defaultdict(list)

        def side(name: str, before: bool, _number: int) -> Measurement:
            shutil.rmtree(folder / "out", ignore_errors=True)
            if before:
                _run(folder, _SPANS - 1)
            measured, node = _run(folder, _SPANS)
            cpu[name].append(node["cpu_seconds"])
            work = Work(_ROWS * (_SPANS - 1), node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])
            return replace(measured, work=work)

        sides = {"six spans were analyzed before": True, "all spans are new": False}
        measured = measure.in_turns({name: partial(side, name, before) for name, before in sides.items()}, _ROUNDS)
    facts: Facts = {f"{name}: CPU-s of Transform": Spread.of(seconds) for name, seconds in cpu.items()}
    print(measure.record("spans", "python -m benchmarks.spans", measured, facts))


def _trips(folder: Path) -> Path:
    path = folder / "trips.csv"
    command = [sys.executable, "-m", taxi.__name__, "--rows", str(_SPANS * _ROWS), "--output", str(path)]
    subprocess.run(command, check=True)
    return path


def _run(folder: Path, newest: int) -> tuple[Measurement, dict[str, float]]:
    """Run the pipeline up to Transform; return the measurements of the run and of Transform."""
    log = folder / "log"
    sets = [f"data.path={folder}/spans/{{SPAN}}/trips.csv", f"data.spans={{start: {newest - 6}, end: {newest}}}"]
    command = [sys.executable, "runner.py", "--local", "--json", "--output", str(folder / "out"), "--to", "Transform"]
    measured = measure.run([*command, *(word for setting in sets for word in ("--set", setting))], log)
    node: dict[str, float] = json.loads(log.read_text().splitlines()[-1])["nodes"]["Transform"]
    return measured, node


if __name__ == "__main__":
    main()
