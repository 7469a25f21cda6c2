"""Compare a first run of our taxi example, from nothing to a pushed model, with TFX's example on the same rows.

python -m benchmarks.first_run [--rounds 5]

Both examples run unchanged, start without artifacts and metadata, and include their imports. Ours trains 200 steps of
512 examples in two processes, loads the export in a fresh process and queries a model server. The stock example trains
1,000 steps of 40 examples in one process. Our example is also measured with this training, and in a second run where
all nodes are cached.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import measure

_STOCK_TRAINING = ("training.steps=1000", "training.batch_size=40", "training.strategy.kind=none")


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def stock(number: int) -> measure.Measurement:
            command = [sys.executable, "-m", "benchmarks.stock_taxi", str(folder / f"stock{number}")]
            return measure.run(command, folder / "stock.log")

        def ours(_number: int) -> measure.Measurement:
            shutil.rmtree(folder / "ours", ignore_errors=True)
            return measure.run(_ours(folder / "ours"), folder / "ours.log")

        def again(_number: int) -> measure.Measurement:
            return measure.run(_ours(folder / "ours"), folder / "again.log")

        def as_stock(_number: int) -> measure.Measurement:
            shutil.rmtree(folder / "as_stock", ignore_errors=True)
            return measure.run(_ours(folder / "as_stock", *_STOCK_TRAINING), folder / "as_stock.log")

        sides = {"stock TFX": stock, "ours, trained as stock": as_stock, "ours": ours, "ours, all cached": again}
        measured = measure.in_turns(sides, options.rounds)
        first = json.loads((folder / "ours.log").read_text().splitlines()[-1])
        cached = json.loads((folder / "again.log").read_text().splitlines()[-1])
    facts = {
        "wall time, ours / stock": measure.ratio(measured["ours"], measured["stock TFX"]),
        "wall time, ours trained as stock / stock": measure.ratio(
            measured["ours, trained as stock"], measured["stock TFX"]
        ),
        "CPU time, ours / stock": measure.ratio(measured["ours"], measured["stock TFX"], "cpu"),
        "AUC on the eval split": round(first["metrics"]["auc"], 4),
        "a cached run, after the imports, seconds": round(cached["seconds"] - cached["import_seconds"], 2),
        "its nodes": ", ".join(f"{name} {node['state']}" for name, node in cached["nodes"].items()),
    }
    command = f"python -m benchmarks.first_run --rounds {options.rounds}"
    print(measure.record("first_run", command, measured, facts))


def _ours(folder: Path, *settings: str) -> list[str]:
    command = [sys.executable, "runner.py", "--local", "--output", str(folder), "--json"]
    return [*command, *(word for setting in settings for word in ("--set", setting))]


if __name__ == "__main__":
    main()
