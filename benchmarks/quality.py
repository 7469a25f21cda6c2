"""Compare the models of configs that `init` writes with other libraries' models with default settings.

python -m benchmarks.quality [--tables wa_churn,penguins,...] [--seeds 3] [--budget 60] [--autogluon]

For each seed, a table is split at random, see benchmarks/quality_baselines.py, and all models use the same rows. Our
model is made by `runner.py init` on the training rows, and by `runner.py` up to the Evaluator, with the test rows as
eval split. The other models are trained in a separate environment, which `tools/environment.sh quality` creates. With
--autogluon, AutoGluon has as many seconds as `init` and the run took, in the environment `autogluon`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyarrow import csv

from benchmarks import measure
from benchmarks.quality_baselines import TABLES, Table

_ENVIRONMENT, _AUTOGLUON = "quality", "autogluon"
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
      cpu_seconds: Model → CPU-seconds of its training and predictions; ours with `init`, and with all imports.
      calibration_error: Expected calibration error of our model. If the task is not binary, None.
      blessed: Whether our Evaluator has blessed our model.
      seconds: Time from the start of `init` to the end of our run.
    """

    losses: dict[str, float]
    cpu_seconds: dict[str, float]
    calibration_error: float | None
    blessed: bool
    seconds: float

    @property
    def ranks(self) -> dict[str, int]:
        """Model → rank, where 1 is the lowest loss."""
        models = [name for name in self.losses if name != "constant"]
        return {name: 1 + sum(self.losses[model] < self.losses[name] for model in models) for name in models}

    @property
    def lost_gains(self) -> dict[str, float]:
        """Model → its distance from the lowest loss, as a share of the distance between that and the constant."""
        least, constant = min(self.losses.values()), self.losses["constant"]
        return {name: (loss - least) / (constant - least) for name, loss in self.losses.items() if constant > least}


def main() -> None:
    """Compare, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of init for fitting kinds of models")
    parser.add_argument("--autogluon", action="store_true", help="compare with AutoGluon, too")
    parser.add_argument("--splits", type=Path, help="JSON lines: results to use, and to which new results are added")
    options = parser.parse_args()
    for environment in (_ENVIRONMENT, *([_AUTOGLUON] if options.autogluon else [])):
        subprocess.run(["tools/environment.sh", environment], check=True)
    names = options.tables.split(",")
    lines = options.splits.read_text().splitlines() if options.splits and options.splits.exists() else []
    results = {(line["table"], line["seed"]): Split(**line["split"]) for line in map(json.loads, lines)}

    # Every table once, then every table with the next seed: the results of an interrupted comparison are of use.
    for seed, name in itertools.product(range(options.seeds), names):
        if (name, seed) in results:
            continue
        split = results[name, seed] = _compare(name, seed, options.budget, options.autogluon)
        line = json.dumps({"table": name, "seed": seed, "split": asdict(split)})
        print(line, file=sys.stderr, flush=True)
        if options.splits:
            with options.splits.open("a") as file:
                file.write(line + "\n")

    by_table = {name: [results[name, seed] for seed in range(options.seeds)] for name in names}
    command = (
        f"python -m benchmarks.quality --tables {options.tables} --seeds {options.seeds} --budget {options.budget:g}"
        f"{' --autogluon' if options.autogluon else ''}"
    )
    measured = {
        f"{name}: init and run": [measure.Measurement(split.seconds, split.cpu_seconds[_OURS], 0.0) for split in splits]
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
    for held_out, group in ((False, "tables with which decisions were made"), (True, "other tables")):
        members = [name for name in by_table if (name in TABLES and TABLES[name].held_out) == held_out]
        figures |= _compare_models(f"{group} ({len(members)})", [split for name in members for split in by_table[name]])
    worse = [split for split in everything if split.losses[_OURS] >= split.losses["constant"]]
    figures["models of ours that are not better than a constant"] = len(worse)
    figures["of these blessed"] = sum(split.blessed for split in worse)
    return figures


def _compare_models(group: str, splits: list[Split]) -> measure.Facts:
    """Return the mean rank, the mean lost gain and the median CPU-seconds of each model."""
    figures: measure.Facts = {}
    for model in splits[0].ranks if splits else ():
        ranks = _format_mean([split.ranks[model] for split in splits])
        lost = _format_mean([split.lost_gains[model] for split in splits if split.lost_gains])
        cpu = statistics.median(split.cpu_seconds[model] for split in splits)
        figures[f"{group}: {model}"] = f"mean rank {ranks}, lost gain {lost}, {cpu:.1f} CPU-seconds"
    return figures


def _format_mean(values: Sequence[float]) -> str:
    if not values:
        return "unknown"
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3g} ± {error:.2g}"


def _compare(name: str, seed: int, budget: float, autogluon: bool) -> Split:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "data")
        program = [f".cache/{_ENVIRONMENT}/bin/python", "-m", "benchmarks.quality_baselines"]
        _run([*program, name, str(seed), str(folder)], folder.parent)
        results: dict[str, list[float]] = json.loads((folder / "results.json").read_text())
        ours = _evaluate_ours(TABLES[name], seed, folder, budget)
        if autogluon:
            program = [f".cache/{_AUTOGLUON}/bin/python", "-m", "benchmarks.quality_autogluon"]
            _run([*program, name, str(folder), str(ours.seconds)], folder.parent)
            results |= json.loads((folder / "autogluon.json").read_text())
    return replace(
        ours,
        losses=ours.losses | {model: loss for model, (loss, _) in results.items()},
        cpu_seconds=ours.cpu_seconds | {model: cpu for model, (_, cpu) in results.items()},
    )


def _evaluate_ours(table: Table, seed: int, folder: Path, budget: float) -> Split:
    """Run `init` and the pipeline on a split, and return the results of our model."""
    config, data = str(folder / "config.yaml"), str(folder / "train.csv")
    # The other models use all columns, too.
    kept = csv.open_csv(data).schema.names
    arguments = ["--data", data, "--label", table.label, "--task", table.task, "--budget", str(budget), "--keep", *kept]
    drafted = _run(
        [sys.executable, "runner.py", "init", *arguments, "--config", config, "--schema", str(folder / "schema.pbtxt")],
        folder,
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
    ran = _run([sys.executable, *run], folder)
    (file,) = folder.glob("out/*/artifacts/Evaluator/evaluation/*/verdict.json")
    verdict = json.loads(file.read_text())
    metrics = verdict["slices"][0]["metrics"]
    loss = metrics[_METRICS[table.task][0]]
    return Split(
        {_OURS: loss**0.5 if table.task == "regression" else loss},
        {_OURS: drafted.cpu + ran.cpu},
        metrics.get("expected_calibration_error"),
        verdict["blessed"],
        round(drafted.wall + ran.wall, 1),
    )


def _run(command: list[str], folder: Path) -> measure.Measurement:
    # A model that is not blessed is a result, too.
    script = ["bash", "-c", f'"$@" || [ $? = {_NOT_BLESSED} ]', "bash", *command]
    return measure.run(script, folder / "log")


if __name__ == "__main__":
    main()
