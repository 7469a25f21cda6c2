"""Compare models of histories with the best possible model of the simulated sessions.

python -m benchmarks.sessions [--rows 204800] [--seeds 5] [--kinds din,bst,dcn_v2]

Each seed is a log with different users and items. configs/sessions.yaml is run up to the Evaluator with each kind, and
with the single label `clicked`. The latest fifth of the rows is the eval split. The best model is the true probability,
which depends on hidden vectors of users and items and cannot be learned from the rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks import measure
from data import sessions
from data.clicks import best_auc, truth_path

_PASSES = 3
_BATCH = 512


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=204_800)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", default="din,bst,dcn_v2")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        measured: dict[str, list[measure.Measurement]] = {kind: [] for kind in kinds}
        results = [compare(Path(scratch) / str(seed), options.rows, seed, measured) for seed in range(options.seeds)]
    command = f"python -m benchmarks.sessions --rows {options.rows} --seeds {options.seeds} --kinds {options.kinds}"
    print(measure.record("sessions", command, measured, facts(results, options.rows)))


def compare(folder: Path, rows: int, seed: int, measured: dict[str, list[measure.Measurement]]) -> dict[str, float]:
    """Train all kinds on a log, and return their AUCs in the eval split and the AUC of the true probabilities (`best`).

    Args:
      folder: Folder for data and outputs.
      rows: Number of rows in the log.
      seed: Seed of the log.
      measured: Kind → measurements of its runs. A measurement is appended for each kind.
    """
    data = folder / "sessions.parquet"
    sessions.make(rows, seed, data)
    aucs = {}
    for kind, runs in measured.items():
        log = folder / f"{kind}.log"
        runs.append(measure.run(_command(data, rows, kind), log))
        [result] = [line for line in log.read_text().splitlines() if line.startswith('{"run"')]
        aucs[kind] = float(json.loads(result)["metrics"]["auc"])
    table, truth = parquet.read_table(data), parquet.read_table(truth_path(data))
    [evaluated] = folder.glob("out/sessions/artifacts/ExampleGen/examples/*/Split-eval")
    chosen = find_split_rows(table, evaluated)
    return {"best": best_auc(truth["click"].to_numpy()[chosen], table["clicked"].to_numpy()[chosen]), **aucs}


def find_split_rows(table: pa.Table, split: Path) -> Any:
    """Return a mask of the rows of a log that are in a split of the examples, bool, shape [rows]."""
    return np.isin(_keys(table), _keys(parquet.read_table(split)))


def facts(found: list[dict[str, float]], rows: int) -> measure.Facts:
    """Return means over the seeds, and differences from the first kind, with standard errors."""
    first = next(name for name in found[0] if name != "best")
    reported: measure.Facts = {"rows": rows, "seeds": len(found)}
    for name in found[0]:
        reported[f"{name}: AUC"] = with_error([result[name] for result in found])
        if name != "best":
            reported[f"{name}: behind the best"] = with_error([result["best"] - result[name] for result in found])
        if name not in ("best", first):
            reported[f"{first} above {name}"] = with_error([result[first] - result[name] for result in found])
    return reported


def with_error(values: list[float]) -> str:
    """Format the mean of some values, with the standard error if there are several values."""
    mean = f"{statistics.mean(values):.4f}"
    if len(values) < 2:
        return mean
    return f"{mean} (standard error {statistics.stdev(values) / math.sqrt(len(values)):.4f})"


def _command(data: Path, rows: int, kind: str) -> list[str]:
    """Return the command that trains and evaluates a model; later kinds reuse the nodes before the Trainer."""
    steps = round(0.8 * _PASSES * rows / _BATCH)
    fields = {
        "data.path": data,
        "data.labels": "{}",
        "data.label": "clicked",
        "model.kind": kind,
        "training.steps": steps,
        "evaluation.slices": "[]",
        "evaluation.thresholds": "{auc: {min: 0}}",
    }
    chosen = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    arguments = [
        "--local",
        "--json",
        "--config",
        "configs/sessions.yaml",
        "--output",
        str(data.parent / "out"),
        *chosen,
    ]
    return [sys.executable, "runner.py", *arguments, "--to", "Evaluator"]


def _keys(table: pa.Table) -> Any:
    """Return a unique number for each row, from user and time; the columns of examples are lists."""
    user, time = (
        pc.list_flatten(table[name]) if pa.types.is_large_list(table[name].type) else table[name]
        for name in ("user", "time")
    )
    return user.to_numpy() * 2**32 + time.to_numpy()


if __name__ == "__main__":
    main()
