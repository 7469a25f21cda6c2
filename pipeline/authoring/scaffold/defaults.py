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
"""Split for fitting candidates. Shares are ranges of the hash modulo their sum, so `test` contains the rows of the
config's eval split. Candidates are neither trained nor measured on the rows that judge the model later."""
_MANY_IDS = 20_000
"""Vocabulary size above which the embeddings dominate the training."""
_MANY_ROWS = 500_000
_MOST_OF_TREES = 200_000
"""Maximum number of training rows for trees, which then take minutes on two cores."""
_EPOCHS = 100
"""Maximum number of epochs with early stopping, which usually ends the training earlier."""
_EPOCHS_OF_MANY = 2
"""Number of epochs of a training without early stopping."""
_LEAST_STEPS = 300
_EVALUATION = (20, 500)
"""Minimum and maximum number of steps between two evaluations. Within these bounds it is an epoch."""
_PATIENCE = 12
_MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "gbt": {},
    "tabm": {"hidden": [128, 128], "dropout": 0.1},
    "ensemble": {"hidden": [128, 128], "dropout": 0.1},
    "dcn_v2": {"hidden": [128, 64], "embedding": 16, "dropout": 0.1},
    "din": {"hidden": [64, 32], "embedding": 16},
}
"""Kind → fields of the model section that differ from their defaults."""
_FEW_ROWS = 1_500
"""Maximum number of training rows for which folds are used. The losses of all rows then decide when training ends and
how an ensemble weights the trees. With more rows, one validation part is about as good, and several times faster."""
_FOLDS, _MEMBERS_OF_FOLD = 5, 4
_SLICED = 10
"""Maximum number of distinct texts in a column whose values become slices."""


@dataclass(frozen=True)
class TrainingDefaults:
    """Sections of a config that depend on the size of the table and on the task, with reasons as comments.

    Attributes:
      split: Section `data.split`.
      model: Section `model`.
      training: Section `training`; empty to use the defaults of its fields.
      thresholds: Section `evaluation.thresholds`.
      slices: Columns for `evaluation.slices`.
      why_model: Reason for the kind of model.
      why_training: Reason for the number of steps.
      why_thresholds: What the thresholds lie between.
      figures: Comparison of the fitted kinds, one line per kind.
      many_ids: Whether a vocabulary is so large that its embeddings dominate the training.
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
    """Return the defaults for a table, with the kind of model that suits its size.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.
    """
    features = {name: column for name, column in columns.items() if isinstance(column, FeatureChoice)}
    many_ids = max((column.ids for column in features.values()), default=0) > _MANY_IDS
    rows = training_rows(table.rows)
    kind, why_model = _kind(rows, many_ids, any(column.is_history for column in features.values()))
    model, training, why_training = sections(kind, rows, many_ids)
    thresholds, why = choose_thresholds(task)
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
    """Return the approximate number of rows in the training split of a table."""
    return rows * split["train"] // sum(split.values())


def candidates(defaults: TrainingDefaults, rows: int) -> tuple[Kind, ...]:
    """Return the kinds to fit to a table.

    Fitting `ensemble` also fits its parts, tabm and gbt.

    Args:
      defaults: Defaults for the table.
      rows: Number of rows of the table.
    """
    default_kind: Kind = defaults.model["kind"]
    trees: tuple[Kind, ...] = ("ensemble",) if training_rows(rows) <= _MOST_OF_TREES else ("tabm",)
    return (*trees, "linear", *((default_kind,) if default_kind not in ("ensemble", "tabm") else ()))


def sections(kind: Kind, rows: int, many_ids: bool) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the sections `model` and `training` for a kind, and the reason for the number of steps.

    Args:
      kind: Kind of model.
      rows: Number of rows in the training split.
      many_ids: Whether a vocabulary is so large that its embeddings dominate the training.
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
        # In a second epoch, the embedding of an ID with few rows would memorize these rows; see benchmarks/clicks.py.
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


def choose_thresholds(
    task: LearningTask, metrics: Mapping[str, float] | None = None, loss: float = np.nan
) -> tuple[dict[str, dict[str, float]], str]:
    """Return thresholds for the first model, and a comment that explains them.

    Args:
      task: Label and learning task.
      metrics: Metrics of the best fitted candidate on rows that it was not trained on. None if none was fitted.
      loss: Its mean loss; in a regression the squared error in units of the label's variance.

    Returns:
      Thresholds halfway between the constant prediction and the candidate. Without a candidate that is better than the
      constant, they are near the constant, which every model is compared with anyway.
    """
    metrics = metrics or {}
    if task.task == "regression":
        variance = float(task.values[np.isfinite(task.values)].var())
        why, most = f"always predicting the mean has {variance:.4g}", variance
        if loss < 1:
            most = variance * (1 + loss) / 2
            why = f"halfway between {variance:.4g} of the mean and {variance * loss:.4g} of the fitted model"
        return {"mean_squared_error": {"max": float(f"{most:.3g}"), "worse_by_fraction": 0.02}}, why
    if task.task == "binary":
        name, constant, least, why = "auc", 0.5, 0.55, "chance has 0.5"
    else:
        constant = least = max(task.classes.values()) / sum(task.classes.values())
        name, why = "accuracy", f"always predicting the most frequent class is correct in {constant:.1%}"
    if (fitted := metrics.get(name, 0.0)) > constant:
        least = (constant + fitted) / 2
        why = f"{why}; halfway to {fitted:.4g} of the fitted model"
    return {name: {"min": float(np.floor(round(least * 1000, 6)) / 1000), "worse_by": 0.01}}, why


def _is_sliced(table: Table, name: str) -> bool:
    column = table.columns[name]
    return str(column.type) == "binary" and 2 <= len(column.unique()) <= _SLICED
