"""Defaults for split, model, training, thresholds and slices, from the size of a table and its learning task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.models.config import Kind
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table

_SPLIT = {"train": 4, "eval": 1}
FITTED_SPLIT = {"train": 3, "eval": 1, "test": 1}
"""The split for fitting kinds of models. Shares are ranges of the hash modulo their sum, so `test` has the rows of the
config's own eval split: the rows by which a model is judged later neither train nor measure a candidate."""
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
_MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "gbt": {},
    "tabm": {"hidden": [128, 128], "dropout": 0.1},
    "ensemble": {"hidden": [128, 128], "dropout": 0.1},
    "dcn_v2": {"hidden": [128, 64], "embedding": 16, "dropout": 0.1},
    "din": {"hidden": [64, 32], "embedding": 16},
}
"""Kind → the fields of the model section that are not their defaults."""
_FEW_ROWS = 1_500
"""Rows of the training split up to which all of them, in folds, decide when training ends and how much trees count.
With more, one part is about as good, and folds take several times as long."""
_FOLDS, _MEMBERS_OF_FOLD = 5, 4
_SLICED = 10
"""Number of different texts up to which a column is sliced."""


@dataclass(frozen=True)
class TrainingDefaults:
    """The sections of a config that follow from size and task, and the reasons as comments.

    Attributes:
      split: `data.split`.
      model: the section.
      training: the section; empty for the defaults.
      thresholds: of `evaluation`.
      slices: of `evaluation`.
      figures: how the kinds that were fitted compare, a line each.
      many_ids: whether a vocabulary is so large that its embeddings dominate the training.
    """

    split: dict[str, int]
    model: dict[str, Any]
    training: dict[str, Any]
    thresholds: dict[str, dict[str, float]]
    slices: list[str]
    why_model: str
    why_training: str
    why_thresholds: str
    figures: tuple[str, ...] = ()
    many_ids: bool = False


def training_defaults(
    table: Table, task: LearningTask, columns: Mapping[str, FeatureChoice | ExcludedColumn]
) -> TrainingDefaults:
    """Return the defaults for a table, with the kind of model for its size.

    Args:
      table: the data.
      task: what is to be learned.
      columns: name → its features, or why it is excluded.
    """
    features = {name: column for name, column in columns.items() if isinstance(column, FeatureChoice)}
    many_ids = max((column.ids for column in features.values()), default=0) > _MANY_IDS
    rows = training_rows(table.rows)
    kind, why_model = _kind(rows, many_ids, any(column.is_history for column in features.values()))
    model, training, why_training = sections(kind, rows, many_ids)
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
        many_ids=many_ids,
    )


def training_rows(rows: int, split: Mapping[str, int] = _SPLIT) -> int:
    """Return about how many of a table's rows are in the training split."""
    return rows * split["train"] // sum(split.values())


def candidates(defaults: TrainingDefaults, rows: int) -> tuple[Kind, ...]:
    """Return the kinds that are fitted to a table; `ensemble` is fitted together with its parts, tabm and gbt.

    Args:
      defaults: of the table.
      rows: of the table.
    """
    own: Kind = defaults.model["kind"]
    trees: tuple[Kind, ...] = ("ensemble",) if training_rows(rows) <= _MOST_OF_TREES else ("tabm",)
    return (*trees, "linear", *((own,) if own not in ("ensemble", "tabm") else ()))


def sections(kind: Kind, rows: int, many_ids: bool) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the sections model and training for a kind, and the reason for the steps.

    Args:
      kind: of the model.
      rows: of the training split.
      many_ids: whether a vocabulary is so large that its embeddings dominate the training.
    """
    model: dict[str, Any] = {"kind": kind, **_MODELS.get(kind, {"hidden": [128, 64], "dropout": 0.1})}
    folds = {"folds": _FOLDS} if rows <= _FEW_ROWS else {}
    if folds and kind in ("tabm", "ensemble"):
        model["members"] = _MEMBERS_OF_FOLD
    measured = f"loss of all rows, in {_FOLDS} folds" if folds else "loss on the validation part"
    if kind == "gbt":
        return model, folds, f"trees are added until more do not lower the {measured}"
    batch = int(
        next(size for size, most in ((128, 2_000), (256, 20_000), (512, 200_000), (1024, np.inf)) if rows <= most)
    )
    rate = 0.01 if kind == "linear" else 0.002
    training: dict[str, Any] = {"steps": 0, "batch_size": batch, "learning_rate": rate}
    if many_ids or (kind not in ("ensemble", "tabm") and rows > _MANY_ROWS):
        training["steps"] = max(_LEAST_STEPS, (1 if many_ids else _EPOCHS_OF_MANY) * rows // batch)
        why = f"each of about {rows:,} rows is seen {training['steps'] * batch / max(rows, 1):.0f} times"
    else:
        epoch = -(-rows // batch)
        every = int(np.clip(epoch, *_EVALUATION))
        training |= {
            "steps": max(_EPOCHS * epoch, 2 * _PATIENCE * every),
            "early_stopping": _PATIENCE,
            "checkpoint": {"every_steps": every},
            **folds,
        }
        why = f"until {_PATIENCE} evaluations, one every {every} steps, do not lower the {measured}"
    if many_ids:
        # In a second epoch, the embedding of an id with few rows memorizes these rows; see benchmarks/clicks.py.
        training["table_learning_rate"] = 0.05
    return model, training, why


def _kind(rows: int, many_ids: bool, has_history: bool) -> tuple[Kind, str]:
    """Return the kind of model for a number of training rows, and the reason."""
    if has_history:
        return "din", "attention to the history: which of its events count depends on the row"
    if many_ids or rows > _MANY_ROWS:
        return "dcn_v2", "large vocabularies, or many rows: feature crosses and a deep network"
    if rows <= _MOST_OF_TREES:
        return "ensemble", "trees and networks, averaged: the best on our benchmarks of this size"
    return "tabm", "an ensemble of networks that share most weights; so many rows are too many for trees"


def _thresholds(task: LearningTask) -> tuple[dict[str, dict[str, float]], str]:
    """Return bounds that a constant prediction does not meet, and the comment."""
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
