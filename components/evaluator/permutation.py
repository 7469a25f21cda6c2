"""The importance of columns: by how much the loss increases if the model reads other rows' values of a column.

For each column, the values in a random sample are permuted, and the model predicts again. The mean difference of the
losses is the column's importance (permutation importance: L. Breiman, Random forests, Machine Learning 45, 2001; as a
property of a fixed model, its reliance on a column: A. Fisher, C. Rudin and F. Dominici, All models are wrong, but many
are useful, Journal of Machine Learning Research 20, 2019). All columns are permuted in the same way, so that they can
be compared with each other.

For a slice, the values also come from the whole sample, because the column of a slice is constant within the slice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma
from scipy import special

from components.base.config_section import Task
from components.compat.tfma.evaluation import SliceKey
from components.data import split_sample
from components.data.decimals import number_text
from components.data.examples import Examples
from components.data.saved_model import Columns, column_of
from components.data.weights import weights_of
from components.evaluator.binned_sums import Slices
from components.evaluator.binning import LEAST_PROBABILITY, Floats, Ints, Numbers
from components.evaluator.column_selection import select_columns
from components.evaluator.columnar import slice_column
from components.evaluator.crossentropy import select_label_probabilities
from components.evaluator.error_metrics import deviances
from components.evaluator.importance import ColumnImportance, Estimate, Importance, SliceImportance, Value
from components.evaluator.intervals import Interval, Z
from components.evaluator.multilabel_metrics import log_losses
from components.evaluator.plan import EvaluationPlan
from components.evaluator.quantile_metrics import OUTPUT, losses
from components.evaluator.retrieval_metrics import make_reciprocal, measure_interactions
from components.evaluator.saved_model import Evaluated, Model, Recombine
from components.evaluator.slices import slices_of
from components.evaluator.standard_metrics import binary_log_losses
from components.evaluator.survival_metrics import compute_losses
from components.features.expression import Label
from components.results.model_outputs import CUMULATIVE_HAZARD, TIMES

ROWS = 10_000
"""Default number of rows."""
_REPEATS = 5
"""Maximum number of permutations: one permutation of more rows is as precise as several of few rows."""
_CELLS, _FEWEST = 8_000_000, 500
"""Default maximum of rows * columns², and minimum number of rows. If the maximum allows fewer rows, the importance is
only measured for a bound: the model predicts all rows once per column, which takes longer with more columns."""
_SLICES = 100
"""Maximum number of slices; the slices with the most rows are measured."""
_LONGEST = 200
"""Maximum length of a typical value in characters, which excludes encoded images."""


def choose_row_count(plan: EvaluationPlan, label: Label) -> int:
    """Return the number of rows of the sample; 0 if the importance should not be measured."""
    config = plan.select_label(label)
    if config.importance_rows is not None:
        return config.importance_rows
    rows = min(ROWS, _CELLS // max(len(plan.feature_columns or ()), 1) ** 2)
    return max(rows, _FEWEST) if rows >= _FEWEST or config.max_importance else 0


def measure(
    examples: Examples, model: Model, specs: Sequence[tfma.SlicingSpec], plan: EvaluationPlan, rows: int
) -> Importance:
    """Measure the importance of the columns that the features are made of, in all rows and by slice.

    Args:
      examples: The eval split.
      model: The model.
      specs: The slices.
      plan: The columns, the loss and the weight of rows.
      rows: Maximum number of rows of the sample.

    Raises:
      InputError: A row does not have a label or a weight.
    """
    batch = split_sample.draw(examples, rows)
    names = plan.feature_columns or ()
    columns = [name for name in names if not pa.types.is_null(column_of(batch, name).type)]
    repeats = max(1, min(_REPEATS, ROWS // max(batch.num_rows, 1)))
    evaluated, predict = model.evaluate(batch), model.recombine(batch)
    # The search for unneeded columns predicts the rows as often as the importance does.
    seconds, most = _measure_seconds(predict, columns, batch.num_rows) * 2, plan.evaluation.importance_seconds
    repeats = max(1, min(repeats, int(most / max(seconds, 1e-9))))
    fitting_rows = int(batch.num_rows * min(1.0, most / max(seconds * repeats, 1e-9)))
    if fitting_rows < batch.num_rows:
        if fitting_rows < _FEWEST and not plan.evaluation.max_importance:
            return Importance(unknown=f"it would take {seconds:,.0f} s; raise evaluation.importance_seconds")
        batch = _draw_rows(batch, max(fitting_rows, min(_FEWEST, batch.num_rows)))
        evaluated, predict = model.evaluate(batch), model.recombine(batch)
    loss = _Loss(plan)
    losses_before = loss.compute(evaluated.labels, evaluated.predictions, evaluated.outputs)
    weights = weights_of(batch, plan.weight) if plan.weight else np.ones(batch.num_rows)
    if plan.task == "retrieval":
        weights = weights * (evaluated.labels > 0)
    if (weights > 0).sum() < 2:
        return Importance(unknown=f"{int((weights > 0).sum()):,} rows of 2")
    if not np.isfinite(losses_before).all():
        return Importance(unknown=f"the {loss.name} of a row is not a number")
    random = np.random.default_rng(1)
    orders = [random.permutation(batch.num_rows) for _ in range(repeats)]
    by_column = {}
    for name in columns:
        outputs = [predict({name: order}) for order in orders]
        increases = np.stack([loss.compute(evaluated.labels, *output) for output in outputs]) - losses_before
        if not np.isfinite(increases).all():
            return Importance(unknown=f"the {loss.name} with other values of {name} is not a number")
        by_column[name] = _Permuted(
            increases, [predictions for predictions, _ in outputs] if plan.task == "binary" else []
        )
    sample = _Sample(evaluated, losses_before, weights, orders)
    whole = sample.importance({}, np.arange(batch.num_rows), by_column)
    ranked = sorted(whole.columns, key=lambda importance: -importance.loss.value)
    by_rank = {importance.column: by_column[importance.column] for importance in ranked}
    slices = slices_of(batch.num_rows, lambda name: slice_column(batch, [evaluated], name), specs)
    slice_importances = []
    for at in _find_largest(slices):
        inside = slices.rows[slices.numbers == at]
        if (weights[inside] > 0).sum() >= max(plan.evaluation.min_examples, 2):
            slice_importances.append(sample.importance(_words(slices.keys[at]), inside, by_rank))
    typical = {name: _typical(column_of(batch, name)) for name in names}

    def measure_together(shuffled: Sequence[str]) -> Estimate:
        outputs = (predict(dict.fromkeys(shuffled, order)) for order in orders)
        return sample.estimate(np.stack([loss.compute(evaluated.labels, *output) for output in outputs]))

    selection = select_columns(ranked, whole.loss, plan.needed_columns, measure_together)
    slice_importances.insert(0, replace(whole, columns=tuple(ranked)))
    return Importance(loss.name, repeats, tuple(slice_importances), typical, selection)


def _measure_seconds(predict: Recombine, columns: Sequence[str], rows: int) -> float:
    """Estimate the CPU time of the predictions with a permutation of every column, in seconds.

    The CPU time does not depend on what else the machine does, so that the number of rows does not depend on it either.

    Args:
      predict: See `Model.recombine`. The model must have predicted before, because its first call takes longer.
      columns: The columns.
      rows: Number of rows.
    """
    if not columns or not rows:
        return 0.0
    started = time.process_time()
    predict({columns[0]: np.arange(rows)})
    return (time.process_time() - started) * len(columns)


def _draw_rows(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    chosen = pa.array(np.sort(np.random.default_rng(0).permutation(batch.num_rows)[:rows]))
    return pa.RecordBatch.from_arrays([column.take(chosen) for column in batch.columns], schema=batch.schema)


def _find_largest(slices: Slices) -> list[int]:
    """Return the numbers of the slices with the most rows, ordered by name; the whole split is not among them."""
    counts = np.bincount(slices.numbers, minlength=len(slices.keys))
    largest = [at for at in np.argsort(-counts, kind="stable").tolist() if slices.keys[at]][:_SLICES]
    return sorted(largest, key=lambda at: sorted(_words(slices.keys[at]).items()))


def _words(key: SliceKey) -> dict[str, str]:
    """Convert a slice to the form of a verdict."""
    return {name: value if isinstance(value, str) else number_text(value) for name, value in key}


class _Permuted(NamedTuple):
    """The model's results with permuted values of a column.

    Attributes:
      increases: Increases of the rows' losses; [repeats, rows].
      predictions: Predictions by permutation; empty if the task does not have an area under the ROC curve.
    """

    increases: Floats
    predictions: list[Numbers]


class _Loss:
    """The loss of a row: the loss of the model's training, by default the loss of the task.

    Attributes:
      name: Name of the metric that is the mean loss.
    """

    def __init__(self, plan: EvaluationPlan) -> None:
        self._plan = plan
        task_losses: dict[Task, str] = {
            "binary": "binary_crossentropy",
            "multiclass": "crossentropy",
            "multilabel": "log_loss",
            "regression": "mean_squared_error",
            "survival": "negative_log_likelihood",
            "retrieval": "1 - mrr",
        }
        self.name = plan.metrics_of_loss[0] if plan.metrics_of_loss else task_losses[plan.task]

    def compute(self, labels: Numbers, predictions: Numbers, outputs: Columns) -> Floats:
        """Return the losses of rows; NaN or infinite where the loss is not defined for the prediction."""
        plan = self._plan
        if plan.task == "multiclass":
            return -np.log(np.maximum(select_label_probabilities(labels, predictions), LEAST_PROBABILITY))
        if plan.task == "multilabel":
            return log_losses(labels, predictions)
        if plan.task == "survival":
            joined = [predictions[:, np.newaxis], outputs[CUMULATIVE_HAZARD], outputs[TIMES]]
            return compute_losses(labels, np.concatenate(joined, axis=1))
        if plan.task == "retrieval":
            return np.nan_to_num(1 - measure_interactions(make_reciprocal(), labels, predictions))
        if plan.task == "binary":
            return binary_log_losses(labels, predictions)
        if plan.loss == "quantile":
            return losses(labels, outputs[OUTPUT], plan.quantiles)
        if plan.metrics_of_loss:
            return deviances(labels, predictions, 1 if plan.loss == "poisson" else plan.tweedie_power)
        return np.square(labels.astype(np.float64) - predictions)


class _Sample(NamedTuple):
    """The rows, and how they were permuted.

    Attributes:
      evaluated: The rows with their original values.
      losses: Losses with the original values; [rows].
      weights: Weights; [rows].
      orders: By permutation, the row that provides the value for each row.
    """

    evaluated: Evaluated
    losses: Floats
    weights: Floats
    orders: list[Ints]

    def importance(self, name: dict[str, str], rows: Ints, by_column: Mapping[str, _Permuted]) -> SliceImportance:
        """Compute the importance of the columns in some of the rows."""
        weights = self.weights[rows]
        share = weights / weights.sum()
        increases = {column: permuted.increases[:, rows] for column, permuted in by_column.items()}
        means = {column: float((losses.mean(axis=0) * share).sum()) for column, losses in increases.items()}
        total = sum(max(mean, 0.0) for mean in means.values())
        together = sum(increases[column] for column, mean in means.items() if mean > 0)
        areas = self._areas(rows)
        columns = []
        for column, column_increases in increases.items():
            column_share = None
            if not name:
                value = max(means[column], 0.0) / total if total else 0.0
                # The ratio of two means, linearized around their values.
                ends = self._interval((column_increases - value * together) / total, 0.0, rows) if total else None
                column_share = Estimate(value, ends and (max(value + ends[0], 0.0), min(value + ends[1], 1.0)))
            loss = Estimate(means[column], self._interval(column_increases, means[column], rows))
            area = areas.decrease([scores[rows] for scores in by_column[column].predictions]) if areas else None
            columns.append(ColumnImportance(column, loss, column_share, area))
        return SliceImportance(name, len(rows), float((self.losses[rows] * share).sum()), tuple(columns))

    def estimate(self, losses: Floats) -> Estimate:
        """Estimate the increase of the mean loss of all rows.

        Args:
          losses: Losses with shuffled values; [permutations, rows].
        """
        increases = losses - self.losses
        mean = float(increases.mean(axis=0) @ self.weights / self.weights.sum())
        if not np.isfinite(increases).all():
            return Estimate(mean)
        return Estimate(mean, self._interval(increases, mean, np.arange(len(self.weights))))

    def _interval(self, increases: Floats, mean: float, rows: Ints) -> Interval | None:
        """Compute the interval of a mean over rows and permutations by Student's t distribution.

        The increase of a row depends on two rows: the row itself, and the row that provides its value. With one
        permutation, the variance of the mean of n rows is the variance of the increases / n, plus 2 / n times the
        covariance of the increases of a row and of the row that receives its value; a negative covariance counts as 0.
        With k permutations, the variances of the means by row and by the origin of the value are added and multiplied
        by k / (k + 1), which is at least the variance of the mean.

        Args:
          increases: Increases of the loss; [permutations, rows].
          mean: Mean of the increases.
          rows: Numbers of the rows in the sample.
        """
        weights = self.weights[rows]
        count, permutations = int((weights > 0).sum()), len(self.orders)
        if count < 2:
            return None
        residuals = (increases - mean) * weights / permutations
        by_origin = np.zeros(len(self.weights))
        for order, row_residuals in zip(self.orders, residuals, strict=True):
            by_origin[order[rows]] += row_residuals
        by_row = residuals.sum(axis=0)
        squares = (by_row @ by_row + by_origin @ by_origin) * permutations / (permutations + 1)
        squares += max(2 * float(by_row @ by_origin[rows]), 0.0)
        error = float(np.sqrt(squares * count / (count - 1)) / weights.sum())
        half = float(special.stdtrit(count - 1, 0.975)) * error
        return mean - half, mean + half

    def _areas(self, rows: Ints) -> _Areas | None:
        """Return the areas under the ROC curve of some rows; None if a class has fewer than two rows."""
        if self.evaluated.predictions.ndim > 1 or self.evaluated.labels.ndim > 1:
            return None
        rows_of_class = [rows[(self.evaluated.labels[rows] == label) & (self.weights[rows] > 0)] for label in (0, 1)]
        if min(map(len, rows_of_class)) < 2:
            return None
        return _Areas(self.evaluated.labels[rows] == 1, self.evaluated.predictions[rows], self.weights[rows])


class _Areas:
    """Areas under the ROC curve of the same rows.

    Args:
      positive: Whether the label is 1; [rows].
      scores: Predictions; [rows].
      weights: Weights; [rows].
    """

    def __init__(self, positive: npt.NDArray[np.bool_], scores: Numbers, weights: Floats) -> None:
        self._positive, self._weights = positive, weights
        self._before = self._shares(scores)

    def decrease(self, scores: Sequence[Numbers]) -> Estimate | None:
        """Compute the decrease of the mean area with other predictions; None without other predictions.

        The interval is DeLong's for the difference of two areas in the same rows.

        Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
        receiver operating characteristic curves, Biometrics 44, 1988.
        """
        if not scores:
            return None
        decreases = self._before - np.mean([self._shares(permuted) for permuted in scores], axis=0)
        value = variance = 0.0
        for side in (self._positive, ~self._positive):
            weights, count = self._weights[side] / self._weights[side].sum(), int((self._weights[side] > 0).sum())
            value = float((decreases[side] * weights).sum())
            variance += float(np.square(weights * (decreases[side] - value)).sum()) * count / (count - 1)
        half = Z * float(np.sqrt(variance))
        return Estimate(value, (value - half, value + half))

    def _shares(self, scores: Numbers) -> Floats:
        """Return the share of the other class that a row is ordered correctly with; equal scores count half."""
        _, at = np.unique(scores, return_inverse=True)
        positives, negatives = (
            np.bincount(at, np.where(side, self._weights, 0.0)) for side in (self._positive, ~self._positive)
        )
        below = (np.cumsum(negatives) - negatives / 2) / negatives.sum()
        above = 1 - (np.cumsum(positives) - positives / 2) / positives.sum()
        return np.where(self._positive, below[at], above[at])


def _typical(column: pa.Array) -> Value:
    """Return the median of the numbers of a column, or its most frequent text; None if it is mostly missing."""
    if pa.types.is_null(column.type):
        return None
    counts = np.diff(np.asarray(column.offsets))
    if (counts != 1).sum() * 2 > len(counts):
        return None
    values = column.flatten()
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        numbers = np.sort(values.to_numpy(zero_copy_only=False))
        numbers = numbers[np.isfinite(numbers)]
        return numbers[len(numbers) // 2].item() if len(numbers) else None
    frequent = max(pc.value_counts(values).to_pylist(), key=lambda value: (value["counts"], value["values"]))["values"]
    try:
        text = frequent.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _LONGEST else None
