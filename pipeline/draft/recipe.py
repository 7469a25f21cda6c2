"""How a table of this size is split, learned and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.draft.choice import Chosen, LeftOut
from pipeline.draft.table import Table
from pipeline.draft.target import Goal

_SPLIT = {"train": 4, "eval": 1}
_MANY_IDS = 20_000
"""Values of a column from which on its vectors are what is to be learned, rather than the shape of numbers."""
_MANY_ROWS = 500_000
_EPOCHS = (2.0, 30.0)
"""Least and most times that each row is seen, where there are not many ids."""
_ROWS = 2_500
"""Rows up to which it is seen most often."""
_LEAST_STEPS = 300
_SLICED = 10
"""Texts of a column up to which each is judged apart."""


@dataclass(frozen=True)
class Recipe:
    """The sections of a config that follow from size and task, and a word on each."""

    split: dict[str, int]
    model: dict[str, Any]
    training: dict[str, Any]
    thresholds: dict[str, dict[str, float]]
    slices: list[str]
    why_model: str
    why_training: str
    why_thresholds: str


def recipe(table: Table, goal: Goal, columns: Mapping[str, Chosen | LeftOut]) -> Recipe:
    """The recipe for a table, a goal, and what its columns have become."""
    features = {name: column for name, column in columns.items() if isinstance(column, Chosen)}
    rows = table.rows * _SPLIT["train"] // sum(_SPLIT.values())
    most_ids = max((column.ids for column in features.values()), default=0)
    many_ids = most_ids > _MANY_IDS
    if many_ids or rows > _MANY_ROWS:
        model = {"kind": "dcn_v2", "hidden": [128, 64], "embedding": 16, "dropout": 0.1}
        why_model = "large vocabularies, or many rows: crosses of features beside a deep network"
    else:
        model = {"kind": "tabm", "hidden": [128, 128], "dropout": 0.1}
        why_model = "an ensemble of networks that share most weights; the best for a table of this kind"
    batch = int(
        next(size for size, most in ((128, 2_000), (256, 20_000), (512, 200_000), (1024, np.inf)) if rows <= most)
    )
    epochs = 1.0 if many_ids else float(np.clip(_EPOCHS[1] * np.sqrt(_ROWS / max(rows, 1)), *_EPOCHS))
    steps = max(_LEAST_STEPS, round(epochs * rows / batch))
    training = {"steps": steps, "batch_size": batch, "learning_rate": 0.002, "weight_decay": 0.01}
    if many_ids:
        # What a second pass learns of an id with few rows is these rows; see benchmarks/clicks.py.
        training["table_learning_rate"] = 0.05
    thresholds, why = _thresholds(goal)
    sliced = [name for name in features if _is_sliced(table, name)]
    return Recipe(
        split=_SPLIT,
        model=model,
        training=training,
        thresholds=thresholds,
        slices=sliced[:2],
        why_model=why_model,
        why_training=f"each of about {rows:,} rows is seen {steps * batch / max(rows, 1):.0f} times",
        why_thresholds=why,
    )


def _thresholds(goal: Goal) -> tuple[dict[str, dict[str, float]], str]:
    """What a model has to be better than: one that knows nothing of the row."""
    if goal.task == "binary":
        return {"auc": {"min": 0.55, "worse_by": 0.01}}, "chance has 0.5"
    if goal.task == "multiclass":
        share = max(goal.classes.values()) / sum(goal.classes.values())
        told = f"always saying the most frequent class is right in {share:.1%}"
        return {"accuracy": {"min": _floor(share), "worse_by": 0.01}}, told
    known = goal.values[np.isfinite(goal.values)]
    variance = float(known.var())
    told = f"always saying the mean has {variance:.4g}"
    return {"mean_squared_error": {"max": float(f"{variance:.3g}"), "worse_by_fraction": 0.02}}, told


def _floor(share: float) -> float:
    return float(np.floor(share * 100) / 100)


def _is_sliced(table: Table, name: str) -> bool:
    column = table.columns[name]
    return str(column.type) == "binary" and 2 <= len(column.unique()) <= _SLICED
