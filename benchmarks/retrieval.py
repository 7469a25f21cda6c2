"""How many of the next clicks are among the ten items that two towers retrieve, beside a matrix factorization,
popularity, and the best that the simulated sessions allow.

python -m benchmarks.retrieval [--rows 102400] [--seeds 5]

Each seed is a log of other users and items. configs/retrieval.yaml is run up to the Evaluator; the later fifth of the
rows is the eval split. All rank the same items, those of the training split, for the same clicks. The best ranks by the
simulator's own probability that an item is shown next and clicked, which knows the hidden vectors of users and items.
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
"""Rows of the log → a score of each item, [rows, items]."""

_FIRST = 10
_BLOCK = 64
"""Rows that are ranked at a time."""
_FACTORS, _ITERATIONS, _CONFIDENCE, _REGULARIZATION = 32, 10, 30.0, 100.0
"""Of the matrix factorization; those with the best recall in the eval split of the first log, of 26 combinations from 8
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
      folder: for data and outputs.
      rows: of the log.
      seed: of the log.
      runs: what the runs took, which gets another one.
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
    """Return the recall at 10 of the others.

    Args:
      log: the rows.
      held_out: which of them are the eval split, [rows].
      simulator: that has made them.
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
    """Factorizes which users have clicked which items; a row's user is computed from the past clicks that it has.

    So a user who is not among the training rows has a vector as well.

    Source: Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback datasets, ICDM 2008.

    Args:
      clicks: the rows of the training split with a click.
      numbers: id of an item → its number.
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
    """Return the vectors with the least weighted squared error; the preference is 1 for a click, otherwise 0.

    Args:
      confidence: what a click adds to the weight 1, [rows, columns].
      others: the vectors of the columns, [columns, factors].
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
    # A user has the same number of rows in the log, one after the other.
    users = rows.index.to_numpy() // sessions.EVENTS
    return simulator.compute_next_click(users, rows["time"].to_numpy(), items, times, known)


def _compute_recall(clicks: pd.DataFrame, scores: Scores, numbers: pd.Series, in_index: npt.NDArray[np.bool_]) -> float:
    """Return the share of clicks whose item is among the ten highest scores; it comes last among equal scores."""
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
    """Return the means over the seeds, and how far two_tower is above the others, with their standard errors."""
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
