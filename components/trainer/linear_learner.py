"""Training of the linear part of an ensemble: ridge and logistic regressions of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
import tensorflow as tf
from scipy.optimize import OptimizeWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from components.models.forest import Floats, Ints, TreeInput, matrix
from components.models.linear_terms import LinearTerms, LinearWeights
from components.trainer.forest_conversion import count_categories
from components.trainer.forest_learner import ForestLearner
from components.trainer.memory_rows import Rows
from components.trainer.validation_part import FoldMasks, combine_held_out

_PENALTIES = (1.0, 10.0, 100.0)
"""Factors of the squared weights to compare, in units of the loss of one row."""
_MOST_NUMBERS = 4_000_000
"""Maximum number of rows times columns times logits, so that a model takes at most some seconds; the rows are drawn at
random."""
_STEPS = 200


class SelectedLinear(NamedTuple):
    """The penalty of a linear model, and its logits of held-out rows, float32 [rows, outputs]."""

    penalty: float
    logits: Floats


class LinearLearner:
    """Trains linear models on the numbers, categories and words that a forest reads.

    Args:
      learner: The learner of the forest, which chooses the categories, and measures the loss.
    """

    def __init__(self, learner: ForestLearner) -> None:
        self._learner, self._head = learner, learner.head

    def select(self, rows: Rows, masks: Sequence[FoldMasks]) -> SelectedLinear | None:
        """Select the penalty by the loss of held-out rows; None if a class lacks rows to learn it from.

        Args:
          rows: All rows.
          masks: Masks of the validation part, or of every fold.
        """
        logits = {penalty: np.empty((len(rows.label), self._head.outputs), np.float32) for penalty in _PENALTIES}
        for training, held_out in masks:
            held_out_rows, terms = rows.where(held_out), self._compute_terms(rows.where(training))
            for penalty in _PENALTIES:
                linear = self._solve(terms, penalty)
                if linear is None:
                    return None
                logits[penalty][held_out] = predict(linear, held_out_rows.features)
        is_held_out = combine_held_out(masks)
        validation = rows.where(is_held_out)
        candidates = [SelectedLinear(penalty, values[is_held_out]) for penalty, values in logits.items()]
        return min(candidates, key=lambda candidate: self._learner.loss(validation, candidate.logits))

    def fit(self, rows: Rows, penalty: float) -> LinearWeights | None:
        """Train a linear model; None if a class lacks rows."""
        return self._solve(self._compute_terms(rows), penalty)

    def _compute_terms(self, rows: Rows) -> _Terms:
        """Compute the terms of the rows, or of a sample of them."""
        inputs = self._learner.choose_ids(rows)
        width = sum(tree_input.columns for tree_input in inputs) * self._head.outputs
        sample = rows.sample(_MOST_NUMBERS // max(1, width), self._learner.seed)
        # The sample may lack a rare class.
        if self._head.scale or len(np.unique(sample.label)) == len(np.unique(rows.label)):
            rows = sample
        table = matrix(inputs, {name: tf.constant(values) for name, values in rows.features.items()}).numpy()
        counts = np.array(count_categories(inputs))
        numbers = table[:, counts == 0]
        mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
        deviation[deviation == 0] = 1
        terms = (numbers - mean) / deviation
        columns = np.flatnonzero(counts).astype(np.int32)
        starts = np.cumsum([0, *counts[columns]])[: len(columns)].astype(np.int32)
        if len(columns):
            hot = _one_hot(table[:, columns].astype(np.int64) + starts, int(counts.sum()))
            terms = scipy.sparse.hstack([terms, hot]).tocsr()
        ends = table.min(axis=0), table.max(axis=0)
        return _Terms(rows, inputs, terms, mean, deviation, counts == 0, ends, columns, starts)

    def _solve(self, terms: _Terms, penalty: float) -> LinearWeights | None:
        """Find the weights with the lowest penalized loss; None if a class lacks rows."""
        rows, weights = terms.rows, self._learner.weights_of(terms.rows)
        if self._head.scale:
            shift, unit = self._head.scale
            model = Ridge(alpha=penalty, tol=1e-8).fit(terms.matrix, (rows.label - shift) / unit, weights)
        elif len(np.unique(rows.label)) < max(2, self._head.outputs):
            return None
        else:
            with warnings.catch_warnings():
                # The weights are near enough to the minimum: the held-out rows judge them.
                warnings.simplefilter("ignore", ConvergenceWarning)
                # scikit-learn passes an option that the SciPy of the current release line ignores.
                warnings.simplefilter("ignore", OptimizeWarning)
                model = LogisticRegression(C=1 / penalty, tol=1e-6, max_iter=_STEPS).fit(
                    terms.matrix, rows.label, weights
                )
        coefficients = np.reshape(model.coef_, (self._head.outputs, -1)).T
        numbers = coefficients[: len(terms.mean)] / terms.deviation[:, np.newaxis]
        by_column = np.zeros((len(terms.is_number), self._head.outputs), np.float32)
        by_column[terms.is_number] = numbers
        return LinearWeights(
            terms.inputs,
            np.reshape(model.intercept_ - terms.mean @ numbers, -1).astype(np.float32),
            by_column,
            *terms.ends,
            terms.columns,
            terms.starts,
            coefficients[len(terms.mean) :].astype(np.float32),
        )


class _Terms(NamedTuple):
    """The terms of a linear model, computed from rows.

    Attributes:
      rows: The rows.
      inputs: Inputs of the matrix that a forest reads.
      matrix: Standardized numbers and words, then a column of 0 and 1 per category; [rows, terms].
      mean: Means of the numbers, [numbers].
      deviation: Standard deviations of the numbers, 1 for constants; [numbers].
      is_number: Whether a column of the inputs' matrix is a number, bool [columns].
      ends: Minimum and maximum of the columns of the inputs' matrix, [columns] each.
      columns: See `LinearWeights`.
      starts: See `LinearWeights`.
    """

    rows: Rows
    inputs: tuple[TreeInput, ...]
    matrix: Any
    mean: Floats
    deviation: Floats
    is_number: npt.NDArray[np.bool_]
    ends: tuple[Floats, Floats]
    columns: Ints
    starts: Ints


def _one_hot(codes: npt.NDArray[np.int64], count: int) -> scipy.sparse.csr_matrix:
    """Return a matrix [rows, count] that is 1 at the codes of a row."""
    rows, columns = codes.shape
    ones = np.ones(codes.size)
    return scipy.sparse.csr_matrix((ones, codes.reshape(-1), np.arange(rows + 1) * columns), shape=(rows, count))


def predict(linear: LinearWeights, features: Mapping[str, npt.NDArray[Any]]) -> Floats:
    """Return the logits of a linear model, float32 [rows, outputs]."""
    logits: Floats = LinearTerms(linear)({name: tf.constant(values) for name, values in features.items()}).numpy()
    return logits
