"""Compare our models with DeepCTR's models of the same names on the same rows: quality and CPU-seconds of a training.

tools/environment.sh deepctr
python -m benchmarks.deepctr [--rows 102400] [--seeds 5]

Each seed is a log of the simulated sessions. configs/sessions.yaml is run with each kind (din with the single label
`clicked`), and DeepCTR's model of this name is trained on the rows that Transform has written, with the same ids,
numbers, widths, layers, batches and passes; see benchmarks/deepctr_program.py. The CPU-seconds are measured for the
node Trainer, which also evaluates, exports and checks the model, and for DeepCTR's process.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from benchmarks import measure
from benchmarks.sessions import with_error
from data import sessions
from data.clicks import best_auc

_KINDS = {"din": ("click",), "esmm": ("click", "purchase"), "mmoe": ("click", "purchase")}
"""Kind → labels."""
_PASSES, _BATCH = 3, 512
_PYTHON = Path(".cache/deepctr/bin/python")


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=102_400)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        results = [compare(Path(scratch) / str(seed), options.rows, seed, measured) for seed in range(options.seeds)]
    reported: measure.Facts = {"rows": options.rows, "seeds": options.seeds}
    for name in results[0]:
        reported[name] = with_error([result[name] for result in results])
    command = f"python -m benchmarks.deepctr --rows {options.rows} --seeds {options.seeds}"
    print(measure.record("deepctr", command, measured, reported))


def compare(folder: Path, rows: int, seed: int, measured: dict[str, list[measure.Measurement]]) -> dict[str, float]:
    """Train both models of all kinds; return AUCs, differences and CPU-seconds by name.

    Args:
      folder: Folder for data and outputs.
      rows: Number of rows in the log.
      seed: Seed of the log.
      measured: Model → measurements of its runs. A measurement is appended for each model.
    """
    data, steps = folder / "sessions.parquet", round(0.8 * _PASSES * rows / _BATCH)
    sessions.make(rows, seed, data)
    facts: dict[str, float] = {}
    for kind, labels in _KINDS.items():
        log = folder / f"{kind}.log"
        ours = measure.run(_make_command(data, folder / kind, kind, labels, steps), log)
        [line] = [line for line in log.read_text().splitlines() if line.startswith('{"run"')]
        result = json.loads(line)
        [transformed] = folder.glob(f"{kind}/sessions/artifacts/Transform/transformed_examples/*")
        output = folder / f"{kind}.parquet"
        splits = [str(transformed / f"Split-{split}") for split in ("train", "eval")]
        arguments = [kind, *splits, str(steps), str(_BATCH), str(output)]
        theirs = measure.run(
            [str(_PYTHON), "-m", "benchmarks.deepctr_program", *arguments], folder / f"{kind}.deepctr.log"
        )
        measured.setdefault(f"{kind}, the whole run", []).append(ours)
        measured.setdefault(f"{kind} of DeepCTR", []).append(theirs)
        for label, area in _compute_aucs(output).items():
            our_auc = result["metrics"]["auc" if len(labels) == 1 else f"{label}/auc"]
            facts[f"{kind}, {label}: AUC"] = our_auc
            facts[f"{kind}, {label}: above DeepCTR's"] = our_auc - area
        seconds = result["nodes"]["Trainer"]["cpu_seconds"]
        facts[f"{kind}: CPU-seconds of the Trainer"] = seconds
        facts[f"{kind}: DeepCTR's CPU-seconds / them"] = theirs.cpu / seconds
    return facts


def _compute_aucs(output: Path) -> dict[str, float]:
    table = parquet.read_table(output)
    labels: Any = np.array(table["label"].to_pylist()).reshape(len(table), -1)
    names = [name for name in table.column_names if name != "label"]
    return {name: best_auc(table[name].to_numpy(), labels[:, number]) for number, name in enumerate(names)}


def _make_command(data: Path, output: Path, kind: str, labels: tuple[str, ...], steps: int) -> list[str]:
    fields = {"data.path": data, "model.kind": kind, "training.steps": steps, "evaluation.slices": "[]"}
    fields |= {"evaluation.thresholds": "{auc: {min: 0}}"}
    if len(labels) == 1:
        fields |= {"data.labels": "{}", "data.label": "clicked"}
    sets = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    arguments = ["--local", "--json", "--config", "configs/sessions.yaml", "--output", str(output), *sets]
    return [sys.executable, "runner.py", *arguments, "--to", "Evaluator"]


if __name__ == "__main__":
    main()
