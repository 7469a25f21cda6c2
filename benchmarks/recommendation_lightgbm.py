"""Order the rows of a user by LightGBM's LambdaRank; run by `benchmarks.recommendation`, outside of .venv.

PYTHON benchmarks/recommendation_lightgbm.py FOLDER SEED

FOLDER has train.csv and eval.csv.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import ndcg_score, roc_auc_score

_CATEGORIES = ["user", "item", "gender", "occupation"]


def main() -> None:
    """Train on the training split; print the metrics of the eval split."""
    import lightgbm

    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    train, evaluated = (pd.read_csv(folder / f"{split}.csv") for split in ("train", "eval"))
    genres = sorted({genre for text in train["genres"] for genre in text.split()})
    for rows in (train, evaluated):
        for genre in genres:
            rows[f"genre_{genre}"] = [genre in text.split() for text in rows["genres"]]
    for name in _CATEGORIES:
        train[name] = train[name].astype("category")
        evaluated[name] = evaluated[name].astype(train[name].dtype)
    add_item_means(train, evaluated, seed)
    # As in the runs, the newest 15 % of the rows decide when training ends.
    border = train["time"].quantile(0.85)
    parts = [train[train["time"] < border], train[train["time"] >= border]]
    columns = [*_CATEGORIES, "age", "year", "item_mean", *(f"genre_{genre}" for genre in genres)]
    datasets = [
        lightgbm.Dataset(rows[columns], (rows["rating"] >= 4).astype(int), group=count_rows(rows), free_raw_data=False)
        for rows in (part.sort_values("user", kind="stable") for part in parts)
    ]
    options: dict[str, Any] = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "lambdarank_truncation_level": 20,
        "learning_rate": 0.05,
        "seed": seed,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "num_threads": 2,
        "verbose": -1,
    }
    stopping = lightgbm.early_stopping(50, verbose=False)
    model = lightgbm.train(options, datasets[0], 1000, valid_sets=datasets[1:], callbacks=[stopping])
    print(json.dumps(measure(evaluated, np.asarray(model.predict(evaluated[columns])))))


def add_item_means(train: pd.DataFrame, evaluated: pd.DataFrame, seed: int) -> None:
    """Add the mean label of an item, which trees do not learn from a thousand categories, as `item_mean`.

    The mean of a training row is computed from the other four of five folds, and the mean of all rows counts as ten
    rows.
    """

    def compute(rows: pd.DataFrame, items: pd.Series) -> pd.Series:
        liked = rows["rating"] >= 4
        sums = liked.groupby(rows["item"], observed=True).agg(["sum", "size"])
        means = (sums["sum"] + 10 * liked.mean()) / (sums["size"] + 10)
        return items.astype(str).map(means.rename(index=str)).fillna(liked.mean())

    folds = np.random.default_rng(seed).integers(0, 5, len(train))
    train["item_mean"] = 0.0
    for fold in range(5):
        train.loc[folds == fold, "item_mean"] = compute(train[folds != fold], train.loc[folds == fold, "item"])
    evaluated["item_mean"] = compute(train, evaluated["item"])


def count_rows(rows: pd.DataFrame) -> list[int]:
    """Return the number of rows of every user, in the order of the rows, which are sorted by user."""
    sizes: list[int] = rows.groupby("user", observed=True, sort=False).size().tolist()
    return sizes


def measure(rows: pd.DataFrame, scores: npt.NDArray[np.float64]) -> dict[str, float]:
    """Compute the means over the users, as the Evaluator does."""
    rows = pd.DataFrame({"user": rows["user"].astype(str), "label": rows["rating"] >= 4, "score": scores})
    areas, weights, gains = [], [], []
    for _, group in rows.groupby("user"):
        if 0 < group["label"].sum() < len(group):
            areas.append(roc_auc_score(group["label"], group["score"]))
            weights.append(len(group))
        if group["label"].any():
            gains.append(ndcg_score([group["label"]], [group["score"]], k=10) if len(group) > 1 else 1.0)
    return {
        "auc": float(roc_auc_score(rows["label"], rows["score"])),
        "gauc": float(np.average(areas, weights=weights)),
        "ndcg_at_10": float(np.mean(gains)),
    }


if __name__ == "__main__":
    main()
