"""Defaults for split, model, training, thresholds and slices, from the size of a table and its learning task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from components.models.config import Kind
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.kind_choice import Fit
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.panels import Panel
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
_FORESTS, _MOST_OF_FORESTS, _MOST_VALUES_OF_FORESTS = 4, 20_000, 300_000
"""Number of forests, and for several forests the maximum number of training rows times logits, and of these times
columns. Forests of more rows differ less by the seed, and every logit has its own trees, which take time to train and
to predict."""
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
    "gbt_linear": {},
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
_ERRORS = 2.0
"""Minimum distance of a threshold from the fitted model, in standard errors."""
_SLICED = 10
"""Maximum number of distinct texts in a column whose values become slices."""


class TableSize(NamedTuple):
    """The size of a table.

    Attributes:
      rows: Number of rows in the training split.
      columns: Number of columns that become features.
      many_ids: Whether a vocabulary is so large that its embeddings dominate the training.
    """

    rows: int
    columns: int
    many_ids: bool = False


@dataclass(frozen=True)
class TrainingDefaults:
    """Sections of a config that depend on the size of the table and on the task, with reasons as comments.

    Attributes:
      split: Section `data.split`.
      model: Section `model`.
      training: Section `training`; empty to use the defaults of its fields.
      thresholds: Section `evaluation.thresholds`.
      slices: Columns for `evaluation.slices`.
      fairness: Section `evaluation.fairness`. Empty without groups of persons, or if the task is not binary.
      why_split: Reason for the split; "" for a hash of the features.
      why_model: Reason for the kind of model.
      why_training: Reason for the number of steps.
      why_thresholds: What the thresholds lie between.
      figures: Comparison of the fitted kinds, one line per kind.
      size: Size of the table.
    """

    split: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]
    thresholds: dict[str, dict[str, float]]
    slices: list[str]
    why_model: str
    why_training: str
    why_thresholds: str
    size: TableSize
    figures: tuple[str, ...] = ()
    fairness: dict[str, str] = field(default_factory=dict)
    why_split: str = ""


def training_defaults(
    table: Table,
    task: LearningTask,
    columns: Mapping[str, FeatureChoice | ExcludedColumn],
    group: str | None = None,
    protected: Sequence[str] = (),
    panel: Panel | None = None,
) -> TrainingDefaults:
    """Return the defaults for a table, with the kind of model that suits its size.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.
      group: Column whose rows have to be in the same split, if there is one.
      protected: Columns with attributes of persons that laws protect.
      panel: Columns of a table that is ordered by time.
    """
    features = {name: column for name, column in columns.items() if isinstance(column, FeatureChoice)}
    many_ids = max((column.ids for column in features.values()), default=0) > _MANY_IDS
    rows = training_rows(table.rows)
    kind, why_model = _kind(rows, many_ids, any(column.is_history for column in features.values()))
    size = TableSize(rows, len(features), many_ids)
    model, training, why_training = sections(kind, size, task)
    thresholds, why = choose_thresholds(task, table.rows - rows)
    groups = [name for name in protected if _is_sliced(table, name, "binary", "int64")]
    sliced = [name for name in features if name not in groups and _is_sliced(table, name, "binary")]
    return TrainingDefaults(
        split={**({"by": "group", "columns": [group]} if group else panel.split if panel else {}), **_SPLIT},
        why_split=panel.why if panel else "",
        model=model,
        training=training,
        thresholds=thresholds,
        slices=groups + sliced[:2],
        fairness={"column": groups[0]} if groups and task.task == "binary" else {},
        why_model=why_model,
        why_training=why_training,
        why_thresholds=why,
        size=size,
    )


def training_rows(rows: int, split: Mapping[str, int] = _SPLIT) -> int:
    """Return the approximate number of rows in the training split of a table."""
    return rows * split["train"] // sum(split.values())


def candidates(defaults: TrainingDefaults, rows: int, trees_alone: bool) -> tuple[Kind, ...]:
    """Return the kinds to fit to a table, in the order in which they are started.

    Fitting `ensemble` also fits tabm and `gbt_linear`; fitting `gbt_linear` also fits gbt.

    Args:
      defaults: Defaults for the table.
      rows: Number of rows of the table.
      trees_alone: Whether trees are also fitted alone, so that they are compared if the networks do not end in time.
    """
    default_kind: Kind = defaults.model["kind"]
    if training_rows(rows) > _MOST_OF_TREES:
        kinds: tuple[Kind, ...] = ("linear", "tabm")
    else:
        kinds = ("gbt_linear", "linear", "ensemble") if trees_alone else ("ensemble", "linear")
    return (*kinds, *((default_kind,) if default_kind not in ("ensemble", "tabm") else ()))


def sections(kind: Kind, size: TableSize, task: LearningTask) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the sections `model` and `training` for a kind, and the reason for the number of steps.

    Args:
      kind: Kind of model.
      size: Size of the table.
      task: Label and learning task.
    """
    rows, columns, many_ids = size
    model: dict[str, Any] = {"kind": kind, **_MODELS.get(kind, {"hidden": [128, 64], "dropout": 0.1})}
    model |= {"loss": task.loss} if task.loss else {}
    logits = len(task.classes) if task.task == "multiclass" else 1
    has_forests = rows * logits <= _MOST_OF_FORESTS and rows * logits * columns <= _MOST_VALUES_OF_FORESTS
    if kind in ("gbt", "gbt_linear", "ensemble") and has_forests:
        model["forests"] = _FORESTS
    folds = {"folds": _FOLDS} if rows <= _FEW_ROWS else {}
    if folds and kind in ("tabm", "ensemble"):
        model["members"] = _MEMBERS_OF_FOLD
    measured = f"loss of all rows, in {_FOLDS} folds" if folds else "loss on the validation part"
    if kind in ("gbt", "gbt_linear"):
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
    task: LearningTask, rows: int, fitted: Fit | None = None
) -> tuple[dict[str, dict[str, float]], str]:
    """Return a threshold for the first model, and a comment that explains it.

    It lies between the constant prediction and the fitted model; see `_choose_threshold`. The metric is the AUC, the
    accuracy, the squared error, or the deviance of counts. If the accuracy of the fitted model exceeds the constant's
    only by noise, as with a class that most rows have, it is the crossentropy.

    Args:
      task: Label and learning task.
      rows: Approximate number of rows in the eval split.
      fitted: The best fitted candidate. None if none was fitted.

    Returns:
      The threshold. Without a candidate that is better than the constant, it is near the constant, which every model is
      compared with anyway.
    """
    size = [count for count in (rows, len(fitted.losses) if fitted else 0) if count]
    error = float(fitted.losses.std() * np.sqrt(sum(1 / count for count in size))) if fitted else 0.0
    if task.loss == "poisson":
        mean = float(task.values.mean())
        constant = 2 * float(special.xlogy(task.values, task.values / mean).mean())
        most, why = constant, f"always predicting the mean has {constant:.4g}"
        # The loss is half the deviance, in units of the mean.
        value = 2 * mean * fitted.loss if fitted else constant
        if value < constant:
            most, place = _choose_threshold(constant, value, 2 * mean * error)
            why = f"{why}; {place}"
        return {"poisson_deviance": {"max": float(f"{most:.3g}"), "worse_by_fraction": 0.02}}, why
    if task.task == "regression":
        variance = float(task.values[np.isfinite(task.values)].var())
        most, why = variance, f"always predicting the mean has {variance:.4g}"
        # The loss is the squared error in units of the variance.
        if fitted and fitted.loss < 1:
            most, place = _choose_threshold(variance, variance * fitted.loss, variance * error)
            why = f"{why}; {place}"
        return {"mean_squared_error": {"max": float(f"{most:.3g}"), "worse_by_fraction": 0.02}}, why
    shares = np.array(list(task.classes.values())) / max(sum(task.classes.values()), 1)
    if task.task == "binary":
        name, constant, least, why = "auc", 0.5, 0.55, "chance has 0.5"
    else:
        name, constant = "accuracy", float(shares.max())
        least, why = constant, f"always predicting the most frequent class is correct in {constant:.1%}"
    value = fitted.metrics.get(name, 0.0) if fitted else 0.0
    if fitted and value > constant:
        binary = task.task == "binary"
        variances = [
            _compute_variance_of_auc(value, shares * count) if binary else value * (1 - value) / count for count in size
        ]
        least, place = _choose_threshold(constant, value, sum(variances) ** 0.5)
        why = f"{why}; {place}"
    entropy = float(-(shares * np.log(shares)).sum())
    if fitted and task.task == "multiclass" and least == constant and fitted.loss < entropy:
        most, place = _choose_threshold(entropy, fitted.loss, error)
        why = f"always predicting the shares of the classes has {entropy:.4g}; {place}"
        return {"crossentropy": {"max": float(np.ceil(round(most * 1000, 6)) / 1000), "worse_by_fraction": 0.02}}, why
    return {name: {"min": float(np.floor(round(least * 1000, 6)) / 1000), "worse_by": 0.01}}, why


def _choose_threshold(constant: float, value: float, error: float) -> tuple[float, str]:
    """Return a threshold between a constant prediction and a model, and its place in words.

    It is halfway. It is nearer to the constant if the standard error is so large that an equally good model could miss
    the half by chance.

    Args:
      constant: Metric of the best constant prediction.
      value: Metric of the model, which is better.
      error: Standard error of the difference between the metrics of two equally good models on different rows.
    """
    gain = abs(value - constant)
    distance = min(gain, max(gain / 2, _ERRORS * error))
    if distance == gain:
        return constant, f"within two standard errors of {value:.4g} of the fitted model"
    place = "halfway to" if distance == gain / 2 else "two standard errors from"
    return value + (distance if value < constant else -distance), f"{place} {value:.4g} of the fitted model"


def _compute_variance_of_auc(auc: float, rows: npt.NDArray[np.float64]) -> float:
    """Return the variance of an AUC.

    Source: J. A. Hanley and B. J. McNeil, The meaning and use of the area under a receiver operating characteristic
    (ROC) curve, Radiology 143, 1982.

    Args:
      auc: The area.
      rows: Numbers of rows of the two classes in any order, which changes the result little; shape [2].
    """
    positive, negative = np.maximum(rows, 1.0)
    two_positive, two_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = (positive - 1) * (two_positive - auc**2) + (negative - 1) * (two_negative - auc**2)
    return float((auc * (1 - auc) + spread) / (positive * negative))


def _is_sliced(table: Table, name: str, *types: str) -> bool:
    column = table.columns[name]
    return str(column.type) in types and 2 <= len(column.unique()) <= _SLICED
