"""Compare the kinds of a retrieval on the MovieLens 100K ratings, with means over the users.

    python -m benchmarks.movielens FILE

FILE has a header and the columns user, item, rating and time, separated by tabs. GroupLens distributes the data set
(F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5, 2015); this project does not
contain it. Every rating is an interaction. A tenth of each user's rows, at random, is the eval split. All items of the
training split are ranked, except for those that the user has rated there. EASE and popularity are also computed by
NumPy from the same split, with dense matrices.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from pyarrow import parquet

from benchmarks import measure

Floats: TypeAlias = npt.NDArray[np.float64]

FIRST = 10
MODELS: dict[str, dict[str, Any]] = {
    "ease": {"model": {"kind": "ease", "regularization": 250}},
    "item_knn": {"model": {"kind": "item_knn", "neighbours": 100}},
    "two_tower": {
        "model": {"kind": "two_tower", "hidden": [64], "embedding": 64, "similarity": "dot", "temperature": 1.0},
        "training": {"steps": 1000, "batch_size": 2048, "learning_rate": 0.002, "table_learning_rate": 0.02},
    },
}
"""Name → sections of the config."""
METRICS = ("group_recall_at_10", "group_ndcg_at_10")


def main() -> None:
    """Run the kinds, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    facts: measure.Facts = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        columns = ["user", "item", "rating", "time"]
        ratings = pd.read_csv(options.file, sep="\t", header=0, names=columns)
        ratings.to_parquet(folder / "ratings.parquet")
        for name, sections in MODELS.items():
            measurement, metrics = run(folder, name, sections)
            measured[name] = [measurement]
            facts |= {f"{name}: {metric}": f"{metrics[metric]:.4f}" for metric in METRICS}
        facts |= {
            f"{name} by NumPy: {metric}": f"{value:.4f}"
            for name, values in reference(folder).items()
            for metric, value in zip(METRICS, values, strict=True)
        }
    print(measure.record("movielens", "python -m benchmarks.movielens FILE", measured, facts))


def config(folder: Path, sections: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a run."""
    return {
        "data": {
            "path": str(folder / "ratings.parquet"),
            "split": {"by": "within", "columns": ["user", "item"], "train": 9, "eval": 1},
            "label": "rating > 0",
            "task": "retrieval",
        },
        "features": {"columns": {"user": {"vocab": {"size": 1000}}, "item": {"vocab": {"size": 2000}}}},
        **sections,
        "model": {**sections["model"], "item": ["item"]},
        "evaluation": {
            "group": "user",
            "exclude_seen": "user",
            "thresholds": {"group_ndcg_at_10": {"min": 0.1}},
        },
    }


def run(folder: Path, name: str, sections: dict[str, Any]) -> tuple[measure.Measurement, dict[str, float]]:
    """Run a kind up to the Evaluator; return what the run took, and its metrics."""
    path, log = folder / "movielens.yaml", folder / f"{name}.log"
    path.write_text(yaml.safe_dump(config(folder, sections), sort_keys=False))
    arguments = ["--local", "--json", "--config", str(path), "--output", str(folder / "out"), "--to", "Evaluator"]
    measurement = measure.run([sys.executable, "runner.py", *arguments], log)
    [result] = [line for line in log.read_text().splitlines() if line.startswith('{"run"')]
    return measurement, json.loads(result)["metrics"]


def reference(folder: Path) -> dict[str, tuple[float, float]]:
    """Compute the metrics of EASE and popularity from the splits of the run."""
    [examples] = folder.glob("out/*/artifacts/ExampleGen/examples/*")
    train, held_out = (parquet.read_table(examples / f"Split-{split}").to_pandas() for split in ("train", "eval"))
    return evaluate(
        *(pd.DataFrame({name: _flat(rows[name]) for name in ("user", "item")}) for rows in (train, held_out))
    )


def _flat(values: pd.Series) -> npt.NDArray[np.int64]:
    return np.array([np.ravel(value)[0] for value in values], np.int64)


def evaluate(
    train: pd.DataFrame, held_out: pd.DataFrame, regularization: float = 250
) -> dict[str, tuple[float, float]]:
    """Compute the mean recall and NDCG of the users, by model.

    Args:
      train: The interactions, with the columns user and item.
      held_out: Those to predict.
      regularization: Of EASE.
    """
    users = pd.Index(np.union1d(train["user"], held_out["user"]))
    items = pd.Index(np.union1d(train["item"], held_out["item"]))

    def matrix(rows: pd.DataFrame) -> Floats:
        dense = np.zeros((len(users), len(items)))
        dense[users.get_indexer(rows["user"]), items.get_indexer(rows["item"])] = 1
        return dense

    seen, relevant = matrix(train), matrix(held_out)
    gram = seen.T @ seen
    inverse = np.linalg.inv(gram + regularization * np.eye(len(items)))
    weights = np.eye(len(items)) - inverse / np.diag(inverse)
    scores = {"ease": seen @ weights, "popularity": np.tile(np.diag(gram), (len(users), 1))}
    in_index = seen.any(axis=0)
    return {
        name: _metrics(np.where((seen > 0) | ~in_index, -np.inf, values), relevant) for name, values in scores.items()
    }


def _metrics(scores: Floats, relevant: Floats) -> tuple[float, float]:
    counted = relevant.any(axis=1)
    scores, relevant = scores[counted], relevant[counted]
    first = np.argsort(-scores, axis=1, kind="stable")[:, :FIRST]
    is_ranked = np.isfinite(np.take_along_axis(scores, first, axis=1))
    hits = np.take_along_axis(relevant, first, axis=1) * is_ranked
    discounts = 1 / np.log2(np.arange(2, first.shape[1] + 2))
    counts = relevant.sum(axis=1).astype(int)
    ideal = np.cumsum(discounts)[np.minimum(counts, len(discounts)) - 1]
    return float((hits.sum(axis=1) / counts).mean()), float(((hits * discounts).sum(axis=1) / ideal).mean())


if __name__ == "__main__":
    main()
