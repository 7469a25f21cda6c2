"""Measures how a model's prediction depends on single columns and on pairs of columns, on rows of the eval split.

The partial dependence on a column is the mean prediction of all rows if they had the same value in the column, as a
function of the value (J. H. Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics
29, 2001). The predictions of a single row over the values are its individual conditional expectation. Their spread
around the mean shows whether the effect of the column depends on other columns (A. Goldstein et al., Peeking inside the
black box, Journal of Computational and Graphical Statistics 24, 2015).

All values are taken from rows of a sample, so a prediction is described by the row that provides the values of a column
and the row that provides the other values. Rows are drawn in proportion to their weights.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from components.data import split_sample
from components.data.examples import Examples
from components.data.saved_model import column_of
from components.data.weights import weights_of
from components.evaluator import interactions
from components.evaluator.binning import Floats, Ints
from components.evaluator.dependence import ColumnDependence, Curve, Dependence, HeatMap
from components.evaluator.importance import ColumnImportance, Importance
from components.evaluator.plan import EvaluationPlan
from components.evaluator.saved_model import Model
from components.evaluator.value_grid import Grid, make_grid

ROWS, INTERACTION_ROWS = 300, 64
"""Maximum number of rows over which predictions are averaged, and of rows for interactions, which need the square of
this number of predictions per pair."""
_FEWEST, _FEWEST_INTERACTION_ROWS = 50, 30
_NUMBERS, _TEXTS, _CELLS = 20, 10, 8
"""Maximum number of points of numbers, of texts, and of either in a heat map, in addition to missing values."""
_PAIRED = 4
"""Number of columns whose pairs are measured."""
_CLASSES = 3
"""Maximum number of classes, those with the highest mean probability."""
_BATCH = 8192


class Predictions:
    """The predictions of a model for rows whose columns come from different rows of a sample.

    Args:
      model: The model.
      batch: The sample.
      plan: Task and loss of the model.

    Attributes:
      classes: Numbers of the classes whose probabilities are predicted; empty for other tasks.
      scale: Name of the scale of `predict_additive`.
    """

    def __init__(self, model: Model, batch: pa.RecordBatch, plan: EvaluationPlan) -> None:
        self._recombine, self._most_rows = model.recombine(batch), min(_BATCH, model.most_rows)
        self._link = interactions.choose_link(plan.task, plan.loss)
        self.scale = self._link.name
        self.classes: tuple[int, ...] = ()

    def choose_classes(self, rows: Ints) -> float:
        """Choose the classes of a multiclass task; return the CPU-seconds that the prediction of a row takes.

        Args:
          rows: Rows that are predicted.
        """
        # A model's first call takes longer.
        self._recombine({}, rows[:1])
        started = time.process_time()
        predictions, _ = self._recombine({}, rows)
        seconds = (time.process_time() - started) / len(rows)
        if predictions.ndim > 1:
            means = predictions.mean(axis=0)
            self.classes = tuple(np.argsort(-means, kind="stable")[:_CLASSES].tolist())
        return seconds

    def predict(self, sources: Mapping[str, Ints], rows: Ints) -> Floats:
        """Return predictions, [n, outputs]; see `Model.recombine` for the arguments."""
        return self._predict(sources, rows, additive=False)

    def predict_additive(self, sources: Mapping[str, Ints], rows: Ints) -> Floats:
        """Return predictions on the scale on which a linear model is additive, [n, outputs]."""
        return self._predict(sources, rows, additive=True)

    def _predict(self, sources: Mapping[str, Ints], rows: Ints, *, additive: bool) -> Floats:
        parts = []
        for start in range(0, len(rows), self._most_rows):
            part = slice(start, start + self._most_rows)
            taken = {name: order[part] for name, order in sources.items()}
            predictions = self._recombine(taken, rows[part])[0].astype(np.float64)
            predictions = predictions.reshape(len(predictions), -1)
            predictions = self._link.transform(predictions) if additive else predictions
            parts.append(predictions[:, list(self.classes)] if self.classes else predictions)
        return np.concatenate(parts)


def measure(examples: Examples, model: Model, plan: EvaluationPlan, importance: Importance) -> Dependence:
    """Measure the partial dependence on the most important columns, and the interactions of their pairs.

    Args:
      examples: The eval split.
      model: The model.
      plan: Task, weight of rows, and limits.
      importance: The importance of columns.
    """
    if not plan.evaluation.dependence_columns:
        return Dependence(unknown="evaluation.dependence_columns is 0")
    if importance.unknown or not importance.slices:
        return Dependence(unknown=f"the importance of columns is unknown: {importance.unknown}")
    if plan.task == "retrieval":
        return Dependence(unknown="a retrieval does not predict the label")
    batch = split_sample.draw(examples, max(importance.slices[0].rows, ROWS))
    grids, skipped = _make_grids(batch, importance, plan.evaluation.dependence_columns)
    result = Dependence("prediction" if plan.task in ("regression", "survival") else "probability", skipped=skipped)
    if not grids:
        return replace(result, unknown="none of the columns that have an effect has single values")
    random = np.random.default_rng(2)
    rows = draw_rows(weights_of(batch, plan.weight) if plan.weight else np.ones(batch.num_rows), ROWS, random)
    predictions = Predictions(model, batch, plan)
    seconds = predictions.choose_classes(rows)
    affordable = plan.evaluation.importance_seconds / max(seconds, 1e-9)
    fitting = int(affordable / sum(len(grid.points) for grid in grids.values()))
    if fitting < min(_FEWEST, len(rows)):
        return replace(result, unknown="the model is too slow; raise evaluation.importance_seconds")
    notes = () if fitting >= len(rows) else (f"only {fitting} rows were used, because the model is slow",)
    rows = rows[:fitting]
    columns = tuple(measure_column(predictions, name, grid, rows, random) for name, grid in grids.items())
    result = replace(result, rows=len(rows), columns=columns, notes=notes)
    return _add_interactions(result, batch, predictions, rows, affordable, random)


def _make_grids(batch: pa.RecordBatch, importance: Importance, most: int) -> tuple[dict[str, Grid], dict[str, str]]:
    """Return the grids of the most important columns, and for columns without a grid the reasons."""
    grids: dict[str, Grid] = {}
    skipped: dict[str, str] = {}
    for column in importance.slices[0].columns:
        # Without an effect on the loss, a curve would mostly show noise.
        if not _has_effect(column) or len(grids) == most:
            continue
        grid = make_grid(column_of(batch, column.column), _NUMBERS, _TEXTS)
        if isinstance(grid, str):
            skipped[column.column] = grid
        else:
            grids[column.column] = grid
    return grids, skipped


def _has_effect(column: ColumnImportance) -> bool:
    """Return whether the interval of the column's importance is above 0."""
    return column.loss.interval is not None and column.loss.interval[0] > 0


def draw_rows(weights: Floats, count: int, random: np.random.Generator) -> Ints:
    """Draw rows in proportion to their weights, by systematic sampling; with equal weights without repetition.

    Args:
      weights: Weights of the rows.
      count: Maximum number of rows.
      random: Source of random numbers.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 9A.10.
    """
    rows = random.permutation(np.flatnonzero(weights > 0))
    ends = np.cumsum(weights[rows])
    number = min(count, len(rows))
    marks = (np.arange(number) + random.random()) * ends[-1] / number
    return rows[np.minimum(np.searchsorted(ends, marks, side="right"), len(rows) - 1)]


def measure_column(
    predictions: Predictions, name: str, grid: Grid, rows: Ints, random: np.random.Generator
) -> ColumnDependence:
    """Measure the partial dependence on a column.

    Args:
      predictions: The predictions of the model.
      name: Name of the column.
      grid: Points of the column.
      rows: Rows over which predictions are averaged.
      random: Source of random numbers, for points that stand for several values.
    """
    sources = grid.choose_rows(len(rows), random)
    predicted = predictions.predict({name: sources.ravel()}, np.tile(rows, len(sources)))
    predicted = predicted.reshape(*sources.shape, -1)
    means = predicted.mean(axis=1)
    # Move the curve of each row, so that rows with different predictions but the same effect do not differ.
    moved = predicted - predicted.mean(axis=0) + means.mean(axis=0)
    low, high = np.quantile(moved, [0.1, 0.9], axis=1)
    curves = tuple(
        Curve(
            predictions.classes[output] if predictions.classes else None,
            *(tuple(values[:, output].tolist()) for values in (means, low, high)),
        )
        for output in range(means.shape[1])
    )
    return ColumnDependence(name, grid.numeric, grid.points, curves)


def _add_interactions(
    result: Dependence,
    batch: pa.RecordBatch,
    predictions: Predictions,
    rows: Ints,
    affordable: float,
    random: np.random.Generator,
) -> Dependence:
    """Add the interactions of the first columns, and the heat map of the strongest one.

    Args:
      result: Partial dependence on the columns.
      batch: The sample.
      predictions: The predictions of the model.
      rows: Rows over which predictions are averaged.
      affordable: Maximum number of predictions.
      random: Source of random numbers.
    """
    names = [column.column for column in result.columns[:_PAIRED]]
    if len(names) < 2:
        return result
    functions = len(names) * (len(names) + 1) // 2
    count = min(len(rows), INTERACTION_ROWS, int((affordable / functions) ** 0.5))
    if count < min(_FEWEST_INTERACTION_ROWS, len(rows)):
        notes = (*result.notes, "interactions were not measured, because the model is slow")
        return replace(result, notes=notes)
    pairs = interactions.measure_pairs(predictions.predict_additive, names, rows[:count])
    result = replace(result, scale=predictions.scale, interaction_rows=count, interactions=pairs)
    if pairs[0].strength <= 0:
        return result
    return replace(result, heat_map=measure_heat_map(predictions, batch, pairs[0].columns, rows[:count], random))


def measure_heat_map(
    predictions: Predictions, batch: pa.RecordBatch, columns: tuple[str, str], rows: Ints, random: np.random.Generator
) -> HeatMap | None:
    """Measure the partial dependence on two columns; None if one of them does not have a grid."""
    first, second = (make_grid(column_of(batch, name), _CELLS, _CELLS) for name in columns)
    if isinstance(first, str) or isinstance(second, str):
        return None
    first_rows, second_rows = (grid.choose_rows(len(rows), random) for grid in (first, second))
    shape = len(first_rows), len(second_rows), len(rows)
    sources = (np.broadcast_to(first_rows[:, None], shape).ravel(), np.broadcast_to(second_rows, shape).ravel())
    predicted = predictions.predict(dict(zip(columns, sources, strict=True)), np.tile(rows, shape[0] * shape[1]))
    means = predicted[:, 0].reshape(shape).mean(axis=2)
    output = predictions.classes[0] if predictions.classes else None
    return HeatMap(columns, (first.points, second.points), output, tuple(map(tuple, means.tolist())))
