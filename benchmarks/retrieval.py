"""Compare the recall of two towers with a matrix factorization, popularity, and the best possible ranking.

python -m benchmarks.retrieval [--rows 102400] [--seeds 5]

The recall is the share of clicks whose item is among ten retrieved items. Each seed is a log with different users and
items. configs/retrieval.yaml is run up to the Evaluator, and the latest fifth of the rows is the eval split. All models
rank the items of the training split for the same clicks. The best ranking uses the simulator's probability that an item
is shown next and clicked, which depends on the hidden vectors of users and items.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyarrow import parquet

from benchmarks import measure
from benchmarks.sessions import find_split_rows, with_error
from data import sessions

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Scores = Callable[[pd.DataFrame], Floats]
"""Function from rows of the log to scores of all items, [rows, items]."""

_FIRST = 10
_BLOCK = 64
"""Number of rows that are ranked at a time."""
_FACTORS, _ITERATIONS, _CONFIDENCE, _REGULARIZATION = 32, 10, 30.0, 100.0
"""Hyperparameters of the matrix factorization: the best of 26 combinations on the eval split of the first log, with 8
to 128 factors, confidences from 1 to 100 and regularizations from 3 to 300."""


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=102_400)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    runs: list[measure.Measurement] = []
    with tempfile.TemporaryDirectory() as scratch:
        results = [compare(Path(scratch) / str(seed), options.rows, seed, runs) for seed in range(options.seeds)]
    command = f"python -m benchmarks.retrieval --rows {options.rows} --seeds {options.seeds}"
    print(measure.record("retrieval", command, {"two_tower": runs}, facts(results, options.rows)))


def compare(folder: Path, rows: int, seed: int, runs: list[measure.Measurement]) -> dict[str, float]:
    """Return the recall at 10 in the eval split of a log, by model.

    Args:
      folder: Folder for data and outputs.
      rows: Number of rows in the log.
      seed: Seed of the log.
      runs: Measurements of the runs, to which a measurement is appended.
    """
    data = folder / "sessions.parquet"
    sessions.make(rows, seed, data)
    runs.append(measure.run(_command(data), folder / "run.log"))
    [result] = [line for line in (folder / "run.log").read_text().splitlines() if line.startswith('{"run"')]
    towers = float(json.loads(result)["metrics"][f"recall_at_{_FIRST}"])
    table = parquet.read_table(data)
    [evaluated] = folder.glob("out/retrieval/artifacts/ExampleGen/examples/*/Split-eval")
    held_out = find_split_rows(table, evaluated)
    return {"two_tower": towers, **compare_baselines(table.to_pandas(), held_out, sessions.Sessions(rows, seed))}


def compare_baselines(
    log: pd.DataFrame, held_out: npt.NDArray[np.bool_], simulator: sessions.Sessions
) -> dict[str, float]:
    """Return the recall at 10 of the baselines and of the best ranking.

    Args:
      log: Rows of the log.
      held_out: Mask of the rows in the eval split, [rows].
      simulator: Simulator of the log.
    """
    train, clicked = log[~held_out], log[held_out & (log["clicked"] == 1)]
    numbers = pd.Series(np.arange(simulator.items), index=sessions.make_item_ids(simulator.items))
    counts = np.bincount(numbers[train.loc[train["clicked"] == 1, "item"]], minlength=simulator.items)
    in_index = np.isin(numbers.index, train["item"])
    models: dict[str, Scores] = {
        "best": lambda rows: _score_best(rows, numbers, simulator),
        "matrix factorization": factorize(train[train["clicked"] == 1], numbers),
        "popularity": lambda rows: np.tile(counts.astype(float), (len(rows), 1)),
    }
    return {name: _compute_recall(clicked, scores, numbers, in_index) for name, scores in models.items()}


def factorize(clicks: pd.DataFrame, numbers: pd.Series) -> Scores:
    """Factorize the matrix of clicks by user and item.

    The vector of a row's user is computed from the past clicks in the row, so that users without training rows have a
    vector as well.

    Source: Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback datasets, ICDM 2008.

    Args:
      clicks: Rows of the training split with a click.
      numbers: Id of an item → index.
    """
    users, user = np.unique(clicks["user"], return_inverse=True)
    matrix = np.zeros((len(users), len(numbers)))
    np.add.at(matrix, (user, numbers[clicks["item"]].to_numpy()), _CONFIDENCE)
    items = np.random.default_rng(0).normal(scale=0.1, size=(len(numbers), _FACTORS))
    for _ in range(_ITERATIONS):
        items = _solve(matrix.T, _solve(matrix, items))

    def scores(rows: pd.DataFrame) -> Floats:
        past = np.zeros((len(rows), len(numbers)))
        for row, items_ in enumerate(rows["past_items"]):
            np.add.at(past[row], numbers[items_].to_numpy(), _CONFIDENCE)
        return _solve(past, items) @ items.T

    return scores


def _solve(confidence: Floats, others: Floats) -> Floats:
    """Return the row vectors with the least weighted squared error; the preference is 1 for a click, otherwise 0.

    Args:
      confidence: Weights of clicks in addition to the weight 1 of every entry, [rows, columns].
      others: Vectors of the columns, [columns, factors].
    """
    gram = others.T @ others + _REGULARIZATION * np.eye(_FACTORS)
    vectors = np.empty((len(confidence), _FACTORS))
    for row, weights in enumerate(confidence):
        at = np.flatnonzero(weights)
        clicked_vectors = others[at]
        vectors[row] = np.linalg.solve(
            gram + (clicked_vectors.T * weights[at]) @ clicked_vectors, clicked_vectors.T @ (1 + weights[at])
        )
    return vectors


def _score_best(rows: pd.DataFrame, numbers: pd.Series, simulator: sessions.Sessions) -> Floats:
    counts = rows["past_items"].str.len().to_numpy()
    known = np.arange(sessions.PAST) < counts[:, np.newaxis]
    items, times = np.zeros(known.shape, np.int64), np.zeros(known.shape, np.int64)
    if known.any():
        items[known] = numbers[np.concatenate(rows["past_items"].to_list())]
        times[known] = np.concatenate(rows["past_times"].to_list())
    # All users have the same number of consecutive rows in the log.
    users = rows.index.to_numpy() // sessions.EVENTS
    return simulator.compute_next_click(users, rows["time"].to_numpy(), items, times, known)


def _compute_recall(clicks: pd.DataFrame, scores: Scores, numbers: pd.Series, in_index: npt.NDArray[np.bool_]) -> float:
    """Return the share of clicks whose item is among the ten highest scores; ties count against the item."""
    hits = 0
    for rows in _blocks(clicks):
        of_all = np.where(in_index, scores(rows), -np.inf)
        at = numbers[rows["item"]].to_numpy()
        item_scores = np.take_along_axis(of_all, at[:, np.newaxis], 1)
        hits += int((((of_all >= item_scores).sum(axis=1) <= _FIRST) & in_index[at]).sum())
    return hits / len(clicks)


def _blocks(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    yield from (rows.iloc[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))


def facts(found: list[dict[str, float]], rows: int) -> measure.Facts:
    """Return means over the seeds, and differences between two_tower and the other models, with standard errors."""
    reported: measure.Facts = {"rows": rows, "seeds": len(found)}
    for name in found[0]:
        reported[f"{name}: recall at {_FIRST}"] = with_error([result[name] for result in found])
        if name != "two_tower":
            reported[f"two_tower above {name}"] = with_error([result["two_tower"] - result[name] for result in found])
    return reported


def _command(data: Path) -> list[str]:
    arguments = ["--local", "--json", "--config", "configs/retrieval.yaml", "--output", str(data.parent / "out")]
    return [sys.executable, "runner.py", *arguments, "--set", f"data.path={data}", "--to", "Evaluator"]


if __name__ == "__main__":
    main()
