"""Compare the models of configs that `init` writes with other libraries' models with default settings.

python -m benchmarks.quality [--tables wa_churn,penguins,...] [--seeds 5] [--jobs 2] [--budget 60]

For each seed, a table is split at random, see benchmarks/quality_baselines.py, and all models use the same rows. Our
model is made by `runner.py init` on the training rows, and by `runner.py` up to the Evaluator, with the test rows as
eval split. The other models are trained in a separate environment, which `tools/environment.sh quality` creates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyarrow import csv

from benchmarks import measure
from benchmarks.quality_baselines import TABLES, Table

_ENVIRONMENT = "quality"
_OURS = "ours"
_METRICS = {
    "binary": ("binary_crossentropy", "expected_calibration_error"),
    "multiclass": ("crossentropy",),
    "regression": ("mean_squared_error",),
}
"""Task → metric from which the loss is computed, and further metrics."""
_NOT_BLESSED = 3


@dataclass(frozen=True)
class Split:
    """The results on one split of a table.

    Attributes:
      losses: Model → loss, including the model `constant`.
      calibration_error: Expected calibration error of our model. If the task is not binary, None.
      blessed: Whether our Evaluator has blessed our model.
      seconds: Time from the start of `init` to the end of our run.
    """

    losses: dict[str, float]
    calibration_error: float | None
    blessed: bool
    seconds: float

    @property
    def ranks(self) -> dict[str, int]:
        """Model → rank, where 1 is the lowest loss."""
        models = [name for name in self.losses if name != "constant"]
        return {name: 1 + sum(self.losses[model] < self.losses[name] for model in models) for name in models}


def main() -> None:
    """Compare, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="splits at a time")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of init for fitting kinds of models")
    options = parser.parse_args()
    subprocess.run(["tools/environment.sh", _ENVIRONMENT], check=True)
    names = options.tables.split(",")
    todo = [(name, seed) for name in names for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda each: _compare(each[0], each[1], options.budget), todo))
    by_table = {name: [split for (of, _), split in zip(todo, results, strict=True) if of == name] for name in names}
    command = (
        f"python -m benchmarks.quality --tables {options.tables} --seeds {options.seeds} --budget {options.budget:g}"
    )
    measured = {
        f"{name}: init and run": [measure.Measurement(split.seconds, 0.0, 0.0) for split in splits]
        for name, splits in by_table.items()
    }
    print(measure.record("quality", command, measured, facts(by_table)))


def facts(by_table: dict[str, list[Split]]) -> measure.Facts:
    """Return the figures to report.

    Args:
      by_table: Table → results on its splits.
    """
    figures: measure.Facts = {}
    everything = [split for splits in by_table.values() for split in splits]
    for name, splits in by_table.items():
        means = {model: statistics.mean(split.losses[model] for split in splits) for model in splits[0].losses}
        best = min((model for model in means if model not in (_OURS, "constant")), key=means.__getitem__)
        figures[f"{name}: losses"] = ", ".join(f"{model} {mean:.4g}" for model, mean in means.items())
        figures[f"{name}: ours / {best}, the best of the others"] = measure.Spread.of(
            split.losses[_OURS] / split.losses[best] for split in splits
        )
        if splits[0].calibration_error is not None:
            figures[f"{name}: expected calibration error"] = measure.Spread.of(
                split.calibration_error or 0.0 for split in splits
            )
    for model in everything[0].ranks:
        ranks = [split.ranks[model] for split in everything]
        error = statistics.stdev(ranks) / len(ranks) ** 0.5 if len(ranks) > 1 else 0.0
        figures[f"mean rank of {model}"] = f"{statistics.mean(ranks):.2f} (standard error {error:.2f})"
    worse = [split for split in everything if split.losses[_OURS] >= split.losses["constant"]]
    figures["models of ours that are not better than a constant"] = len(worse)
    figures["of these blessed"] = sum(split.blessed for split in worse)
    return figures


def _compare(name: str, seed: int, budget: float) -> Split:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "data")
        program = [f".cache/{_ENVIRONMENT}/bin/python", "-m", "benchmarks.quality_baselines"]
        _run([*program, name, str(seed), str(folder)])
        losses: dict[str, float] = json.loads((folder / "losses.json").read_text())
        result = _evaluate_ours(TABLES[name], seed, folder, budget)
    split = Split({_OURS: result.losses[_OURS], **losses}, result.calibration_error, result.blessed, result.seconds)
    print(f"{name} {seed}: {split}", file=sys.stderr, flush=True)
    return split


def _evaluate_ours(table: Table, seed: int, folder: Path, budget: float) -> Split:
    """Run `init` and the pipeline on a split, and return the results of our model."""
    config, data = str(folder / "config.yaml"), str(folder / "train.csv")
    # The other models use all columns, too.
    kept = csv.open_csv(data).schema.names
    arguments = ["--data", data, "--label", table.label, "--task", table.task, "--budget", str(budget), "--keep", *kept]
    started = time.perf_counter()
    _run(
        [sys.executable, "runner.py", "init", *arguments, "--config", config, "--schema", str(folder / "schema.pbtxt")]
    )
    changed = {
        "data.path": str(folder),
        "data.split": "{by: files, train: train.csv, eval: test.csv}",
        # The curated schema may refuse a test row with a new text, which the other models accept.
        "schema.path": "null",
        "evaluation.metrics": f"[{', '.join(_METRICS[table.task])}]",
        "training.seed": str(seed),
    }
    sets = [word for field, value in changed.items() for word in ("--set", f"{field}={value}")]
    run = ["runner.py", "--local", "--config", config, "--output", str(folder / "out"), "--to", "Evaluator", *sets]
    _run([sys.executable, *run])
    seconds = time.perf_counter() - started
    (file,) = folder.glob("out/*/artifacts/Evaluator/evaluation/*/verdict.json")
    verdict = json.loads(file.read_text())
    metrics = verdict["slices"][0]["metrics"]
    loss = metrics[_METRICS[table.task][0]]
    return Split(
        {_OURS: loss**0.5 if table.task == "regression" else loss},
        metrics.get("expected_calibration_error"),
        verdict["blessed"],
        round(seconds, 1),
    )


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, _NOT_BLESSED):
        raise RuntimeError(
            f"{' '.join(command)} ended with {ended.returncode}:\n{(ended.stdout + ended.stderr)[-3000:]}"
        )


if __name__ == "__main__":
    main()
