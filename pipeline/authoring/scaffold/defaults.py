"""Defaults for split, model, training, thresholds and slices, from the size of a table and its learning task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table

_SPLIT = {"train": 4, "eval": 1}
_MANY_IDS = 20_000
"""Vocabulary size of a column from which the embeddings dominate the training."""
_MANY_ROWS = 500_000
_MOST_OF_TREES = 200_000
"""Rows up to which trees are trained beside the network: in minutes on two cores."""
_EPOCHS = 100
"""Epochs after which training ends at the latest; early stopping decides."""
_EPOCHS_OF_MANY = 2
"""Epochs of a training without early stopping."""
_LEAST_STEPS = 300
_EVALUATION = (20, 500)
"""Minimum and maximum number of steps between two evaluations; an epoch within these bounds."""
_PATIENCE = 12
_SLICED = 10
"""Number of different texts up to which a column is sliced."""


@dataclass(frozen=True)
class TrainingDefaults:
    """The sections of a config that follow from size and task, and the reasons as comments."""

    split: dict[str, int]
    model: dict[str, Any]
    training: dict[str, Any]
    thresholds: dict[str, dict[str, float]]
    slices: list[str]
    why_model: str
    why_training: str
    why_thresholds: str


def training_defaults(
    table: Table, task: LearningTask, columns: Mapping[str, FeatureChoice | ExcludedColumn]
) -> TrainingDefaults:
    """Returns the defaults for a table.

    Args:
      table: the data.
      task: what is to be learned.
      columns: name → its features, or why it is excluded.
    """
    features = {name: column for name, column in columns.items() if isinstance(column, FeatureChoice)}
    rows = table.rows * _SPLIT["train"] // sum(_SPLIT.values())
    most_ids = max((column.ids for column in features.values()), default=0)
    many_ids = most_ids > _MANY_IDS
    batch = int(
        next(size for size, most in ((128, 2_000), (256, 20_000), (512, 200_000), (1024, np.inf)) if rows <= most)
    )
    training: dict[str, Any] = {"steps": 0, "batch_size": batch, "learning_rate": 0.002}
    if many_ids or rows > _MANY_ROWS:
        model = {"kind": "dcn_v2", "hidden": [128, 64], "embedding": 16, "dropout": 0.1}
        why_model = "large vocabularies, or many rows: feature crosses and a deep network"
        training["steps"] = max(_LEAST_STEPS, (1 if many_ids else _EPOCHS_OF_MANY) * rows // batch)
        why_training = f"each of about {rows:,} rows is seen {training['steps'] * batch / max(rows, 1):.0f} times"
    else:
        kind = "ensemble" if rows <= _MOST_OF_TREES else "tabm"
        model = {"kind": kind, "hidden": [128, 128], "dropout": 0.1}
        why_model = {
            "ensemble": "trees and networks, averaged: the best on our benchmarks of this size",
            "tabm": "an ensemble of networks that share most weights; so many rows are too many for trees",
        }[kind]
        epoch = -(-rows // batch)
        every = int(np.clip(epoch, *_EVALUATION))
        training |= {
            "steps": max(_EPOCHS * epoch, 2 * _PATIENCE * every),
            "early_stopping": _PATIENCE,
            "checkpoint": {"every_steps": every},
        }
        why_training = (
            f"until {_PATIENCE} evaluations, one every {every} steps, do not lower the loss on the validation part"
        )
    if many_ids:
        # In a second epoch, the embedding of an id with few rows memorizes these rows; see benchmarks/clicks.py.
        training["table_learning_rate"] = 0.05
    thresholds, why = _thresholds(task)
    sliced = [name for name in features if _is_sliced(table, name)]
    return TrainingDefaults(
        split=_SPLIT,
        model=model,
        training=training,
        thresholds=thresholds,
        slices=sliced[:2],
        why_model=why_model,
        why_training=why_training,
        why_thresholds=why,
    )


def _thresholds(task: LearningTask) -> tuple[dict[str, dict[str, float]], str]:
    """Returns bounds that a constant prediction does not meet, and the comment."""
    if task.task == "binary":
        return {"auc": {"min": 0.55, "worse_by": 0.01}}, "chance has 0.5"
    if task.task == "multiclass":
        share = max(task.classes.values()) / sum(task.classes.values())
        comment = f"always predicting the most frequent class is correct in {share:.1%}"
        return {"accuracy": {"min": _floor(share), "worse_by": 0.01}}, comment
    variance = float(task.values[np.isfinite(task.values)].var())
    comment = f"always predicting the mean has {variance:.4g}"
    return {"mean_squared_error": {"max": float(f"{variance:.3g}"), "worse_by_fraction": 0.02}}, comment


def _floor(share: float) -> float:
    return float(np.floor(share * 100) / 100)


def _is_sliced(table: Table, name: str) -> bool:
    column = table.columns[name]
    return str(column.type) == "binary" and 2 <= len(column.unique()) <= _SLICED
