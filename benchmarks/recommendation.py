"""Compare models of recommendation on the MovieLens 100K ratings: kinds, models of two labels, and the list-wise loss.

    python -m benchmarks.recommendation FOLDER [--seeds 3] [--lightgbm PYTHON]

FOLDER has the files ml-100k.inter, ml-100k.item and ml-100k.user, as the package `recbole` ships them. GroupLens
distributes the data set (F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5,
2015); this project does not contain it. The newest fifth of each user's ratings is the eval split. The
label `liked` is a rating of 4 or 5, `loved` a rating of 5. All sides read the same columns with the same hidden layers,
and early stopping selects the checkpoint. A seed is a training; the rows are the same. `gauc` and `ndcg_at_10` are
means over the users.

PYTHON is an interpreter with LightGBM and scikit-learn, which orders the rows of a user by LambdaRank (C. Burges, From
RankNet to LambdaRank to LambdaMART, 2010) on the same splits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks import measure

_COLUMNS = {
    "user": "vocab",
    "item": {"vocab": {"min_frequency": 2}},
    "age": "z_score",
    "gender": "vocab",
    "occupation": "vocab",
    "year": "z_score",
    "genres": {"multi_hot": {"separator": " "}},
}
_GATES = {
    "first_gate": ["user", "age", "gender", "occupation"],
    "second_gate": ["item", "year", "genres"],
}
_LISTS = {"kind": "mlp", "loss": "listwise", "list_column": "user"}
MODELS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in ("mlp", "dcn_v2", "final_mlp")},
    "final_mlp with gates": {"kind": "final_mlp", **_GATES},
    "mlp, list-wise loss of 16": {**_LISTS, "list_size": 16},
    "mlp, list-wise loss of 64": {**_LISTS, "list_size": 64},
}
"""Name → the model of one label."""
LABELS_MODELS: dict[str, dict[str, Any]] = {
    "mlp of two labels": {"kind": "mlp"},
    "mmoe": {"kind": "mmoe", "experts": 4},
    "ple, 1 level": {"kind": "ple", "experts": 2, "label_experts": 1, "levels": 1},
    "ple, 2 levels": {"kind": "ple", "experts": 2, "label_experts": 1, "levels": 2},
}
"""Name → the model of two labels."""
_METRICS = ("auc", "gauc", "ndcg_at_10")


def main() -> None:
    """Run the sides, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lightgbm", type=Path)
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    metrics: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        read_ratings(options.folder).to_parquet(folder / "ratings.parquet")
        for seed in range(options.seeds):
            for name, model in (MODELS | LABELS_MODELS).items():
                measurement, side_metrics = run(folder, name, model, seed)
                measured.setdefault(name, []).append(measurement)
                metrics.setdefault(name, []).append(side_metrics)
            if options.lightgbm:
                measurement, side_metrics = run_lightgbm(folder, options.lightgbm, seed)
                measured.setdefault("LightGBM, LambdaRank", []).append(measurement)
                metrics.setdefault("LightGBM, LambdaRank", []).append(side_metrics)
            report(options.seeds, measured, metrics)


def report(
    seeds: int, measured: dict[str, list[measure.Measurement]], metrics: dict[str, list[dict[str, float]]]
) -> None:
    """Print the table of the seeds so far, and write it to results/."""
    facts: measure.Facts = {
        f"{name}: {metric}": summarize([by_metric[metric] for by_metric in by_seed])
        for name, by_seed in metrics.items()
        for metric in by_seed[0]
    }
    command = f"python -m benchmarks.recommendation FOLDER --seeds {seeds} --lightgbm PYTHON"
    print(measure.record("recommendation", command, measured, facts), flush=True)


def read_ratings(folder: Path) -> pd.DataFrame:
    """Join the ratings with the columns of users and items."""

    def read(kind: str, names: list[str]) -> pd.DataFrame:
        return pd.read_csv(folder / f"ml-100k.{kind}", sep="\t", header=0, names=names)

    ratings = read("inter", ["user", "item", "rating", "time"])
    users = read("user", ["user", "age", "gender", "occupation", "zip"])
    items = read("item", ["item", "title", "year", "genres"])
    items["year"] = pd.to_numeric(items["year"], errors="coerce")
    rows = ratings.merge(users.drop(columns="zip"), on="user").merge(items.drop(columns="title"), on="item")
    return rows.astype({"rating": int, "time": int})


def run(folder: Path, name: str, model: dict[str, Any], seed: int) -> tuple[measure.Measurement, dict[str, float]]:
    """Run a side up to the Evaluator; return what the Trainer took, and the metrics."""
    is_single = name in MODELS
    pipeline = "one" if is_single else "two"
    labels = {"label": "rating >= 4"} if is_single else {"labels": {"liked": "rating >= 4", "loved": "rating >= 5"}}
    config = {
        "pipeline": {"name": pipeline},
        "data": {
            "path": str(folder / "ratings.parquet"),
            "split": {"by": "within_time", "columns": ["user", "time"], "train": 8, "eval": 2},
            **labels,
        },
        "features": {"columns": _COLUMNS},
        "model": {"hidden": [64, 32], "embedding": 16, **model},
        "training": {
            "steps": 1000,
            "batch_size": 1024,
            "early_stopping": 3,
            "checkpoint": {"every_steps": 50},
            "seed": seed,
        },
        "evaluation": {"group": "user", "metrics": [*_METRICS], "thresholds": {"auc": {"min": 0.5}}},
    }
    path, log = folder / "recommendation.yaml", folder / "run.log"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    # The nodes before the Trainer run once for all seeds and kinds, so the measurement is of training and evaluation.
    output = ["--output", str(folder / "out")]
    if not (folder / "out" / pipeline).exists():
        prepare = [sys.executable, "runner.py", "--local", "--config", str(path), *output, "--to", "Transform"]
        measure.run(prepare, folder / "prepare.log")
    arguments = ["--local", "--json", "--config", str(path), *output, "--to", "Evaluator"]
    measurement = measure.run([sys.executable, "runner.py", *arguments], log)
    [result] = [line for line in log.read_text().splitlines() if line.startswith('{"run"')]
    metrics = json.loads(result)["metrics"]
    names = _METRICS if is_single else [f"{label}/{metric}" for label in ("liked", "loved") for metric in _METRICS]
    print(seed, name, {metric: metrics[metric] for metric in names}, measurement.cpu, flush=True)
    return measurement, {metric: metrics[metric] for metric in names}


def run_lightgbm(folder: Path, python: Path, seed: int) -> tuple[measure.Measurement, dict[str, float]]:
    """Train LambdaRank on the splits of the runs of one label; return what it took, and its metrics."""
    log = folder / "lightgbm.log"
    [examples] = folder.glob("out/one/artifacts/ExampleGen/examples/*")
    for split in ("train", "eval"):
        # LightGBM's interpreter does not have pyarrow.
        rows = pd.concat(map(pd.read_parquet, sorted((examples / f"Split-{split}").glob("*.parquet"))))
        rows.apply(lambda column: column.map(_first)).to_csv(folder / f"{split}.csv", index=False)
    program = Path(__file__).with_name("recommendation_lightgbm.py")
    measurement = measure.run([str(python), str(program), str(folder), str(seed)], log)
    metrics: dict[str, float] = json.loads(log.read_text().splitlines()[-1])
    return measurement, metrics


def _first(values: Any) -> Any:
    """Return the only value of a row in the files of ExampleGen; None if it is missing."""
    value = values[0] if values is not None and len(values) else None
    return value.decode() if isinstance(value, bytes) else value


def summarize(values: list[float]) -> str:
    """Return the mean over the seeds and its standard error."""
    if len(values) < 2:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} (standard error {statistics.stdev(values) / len(values) ** 0.5:.4f})"


if __name__ == "__main__":
    main()
