"""Evaluate a linear model of the raw columns: what the simplest training on the same rows reaches.

It is scikit-learn's ridge or logistic regression with the default penalty, of standardized numbers and one-hot texts.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.config_section import Task
from components.data import split_sample
from components.data.examples import Examples
from components.data.saved_model import column_of
from components.data.split_sample import concatenate, first_values
from components.data.weights import weights_of
from components.evaluator.leakage_sample import read_single_values
from components.evaluator.plan import EvaluationPlan
from components.features import expression, label_values
from components.features.expression import Label

_CELLS = 4_000_000
"""Maximum number of values that are read of a split, which limits the rows of a wide table."""
_CLASSES = 50
"""Maximum number of classes: the time grows with rows x columns x classes."""
_CATEGORIES, _ROWS_OF_CATEGORY = 50, 5
"""Maximum number of texts of a column that get a weight of their own, and the minimum number of their rows."""
_ITERATIONS = 300
_LEAST = 1e-7
"""The smallest probability, as in TensorFlow's losses."""
_Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearModel:
    """The evaluation of a linear model.

    Attributes:
      metrics: Metric → value on the eval split.
      unknown: Why it was not evaluated. None if it was.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    unknown: str | None = None


def measure(train: Examples, evaluated: Examples, plan: EvaluationPlan, label: Label, rows: int) -> LinearModel:
    """Fit a linear model on rows of the training split, and evaluate it on rows of the eval split.

    Args:
      train: The training split.
      evaluated: The eval split.
      plan: The columns of the features, the task, and the weight of rows.
      label: The label.
      rows: Maximum number of rows of a split. They are drawn at random.
    """
    names = [name for name in plan.feature_columns or () if name not in plan.image_columns]
    if not names:
        return LinearModel(unknown="there are no columns of numbers or texts")
    batches = [split_sample.draw(split, min(rows, _CELLS // len(names))) for split in (train, evaluated)]
    if not all(batch.num_rows for batch in batches):
        return LinearModel(unknown="a split has no rows")
    parsed = expression.parse(label.text)
    read = {name: concatenate([first_values(column_of(batch, name)) for batch in batches]) for name in parsed.columns}
    for name, column in read.items():
        if pa.types.is_null(column.type):
            return LinearModel(unknown=f"column {name} of the label has no value")
    labels = label_values.labels(parsed, plan.task, read)
    weights = [weights_of(batch, plan.weight) if plan.weight else np.ones(batch.num_rows) for batch in batches]
    columns = [concatenate([read_single_values(column_of(batch, name)) for batch in batches]) for name in names]
    columns = [column for column in columns if not pa.types.is_null(column.type)]
    if not columns:
        return LinearModel(unknown="no column has a value")
    matrix, is_text = _make_matrix(columns)
    known = np.isfinite(labels)
    is_train = np.arange(len(labels)) < batches[0].num_rows
    fitted, held_out = (
        (matrix[chosen], labels[chosen], np.concatenate(weights)[chosen])
        for chosen in (known & is_train, known & ~is_train)
    )
    return _evaluate(fitted, held_out, is_text, plan.task)


def _make_matrix(columns: list[pa.Array]) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    """Return float64 of shape [rows, columns], with the codes of texts, and NaN where a number is missing or infinite.

    The second array says which columns are texts, shape [columns].
    """
    is_text = np.array([not pa.types.is_primitive(column.type) for column in columns], bool)
    matrix = np.empty((len(columns[0]), len(columns)))
    for at, column in enumerate(columns):
        values = column.dictionary_encode().indices.fill_null(-1) if is_text[at] else column
        matrix[:, at] = values.cast(pa.float64(), safe=False).fill_null(np.nan)
    matrix[~np.isfinite(matrix)] = np.nan
    return matrix, is_text


def _evaluate(
    train: tuple[_Floats, _Floats, _Floats],
    held_out: tuple[_Floats, _Floats, _Floats],
    is_text: npt.NDArray[np.bool_],
    task: Task,
) -> LinearModel:
    """Fit and evaluate.

    Args:
      train: Matrix, labels and weights of the rows to fit.
      held_out: The same of the rows to evaluate.
      is_text: Which columns of the matrix are codes of texts.
      task: Kind of prediction.
    """
    # Imported late: scikit-learn takes a second.
    from sklearn.exceptions import ConvergenceWarning

    (matrix, labels, weights), (new_matrix, new_labels, new_weights) = train, held_out
    different = len(np.unique(labels))
    if different < 2 or not len(new_labels) or not weights.sum() or not new_weights.sum():
        return LinearModel(unknown="a split has no rows with a weight, or all labels are alike")
    if task != "regression" and different > _CLASSES:
        return LinearModel(unknown=f"{different:,} classes of at most {_CLASSES}")
    regression = _make_regression(is_text, task)
    step = regression.steps[-1][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(matrix, labels, **{f"{step}__sample_weight": weights})
    if task == "regression":
        return LinearModel(_measure_numbers(new_labels, regression.predict(new_matrix), new_weights))
    probabilities = regression.predict_proba(new_matrix)
    if task == "binary":
        return LinearModel(_measure_probabilities(new_labels, probabilities[:, 1], new_weights))
    return LinearModel(_measure_classes(new_labels, probabilities, regression.classes_, new_weights))


def _make_regression(is_text: npt.NDArray[np.bool_], task: Task) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=_ROWS_OF_CATEGORY, max_categories=_CATEGORIES
    )
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), np.flatnonzero(~is_text)),
        (one_hot, np.flatnonzero(is_text)),
    )
    return make_pipeline(encoder, Ridge() if task == "regression" else LogisticRegression(max_iter=_ITERATIONS))


def _measure_numbers(labels: _Floats, predictions: _Floats, weights: _Floats) -> dict[str, float]:
    errors = predictions - labels
    squared = float(np.average(errors**2, weights=weights))
    return {
        "mean_squared_error": squared,
        "root_mean_squared_error": squared**0.5,
        "mean_absolute_error": float(np.average(np.abs(errors), weights=weights)),
    }


def _measure_probabilities(labels: _Floats, probabilities: _Floats, weights: _Floats) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    of_label = np.maximum(np.where(labels == 1, probabilities, 1 - probabilities), _LEAST)
    metrics = {
        "binary_accuracy": float(np.average((probabilities > 0.5) == (labels == 1), weights=weights)),
        "binary_crossentropy": float(np.average(-np.log(of_label), weights=weights)),
        "brier_score": float(np.average((probabilities - labels) ** 2, weights=weights)),
    }
    if len(np.unique(labels[weights > 0])) > 1:
        metrics["auc"] = float(roc_auc_score(labels, probabilities, sample_weight=weights))
    return metrics


def _measure_classes(labels: _Floats, probabilities: _Floats, classes: _Floats, weights: _Floats) -> dict[str, float]:
    at = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    is_known = classes[at] == labels
    of_label = np.where(is_known, probabilities[np.arange(len(labels)), at], 0)
    return {
        "accuracy": float(np.average(classes[probabilities.argmax(axis=1)] == labels, weights=weights)),
        "crossentropy": float(np.average(-np.log(np.maximum(of_label, _LEAST)), weights=weights)),
    }
