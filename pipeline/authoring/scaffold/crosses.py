"""Finds pairs of columns whose combination predicts the label beyond their separate effects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table, kind, numbers

_ROWS = (500, 20_000)
"""Minimum number of rows for a search, and maximum number of rows that are searched."""
_COLUMNS = 60
"""Maximum number of columns whose pairs are searched. The search takes time for each pair."""
_VALUES = 255
"""Maximum number of values of a column in a pair. Pairs of columns with more values rarely repeat."""
_BINS = 16
"""Number of bins for the effect of a column of numbers."""
_FOLDS = 5
_SMOOTHING = 20.0
"""Number of rows with a residual of 0 that are added to each combination, so that rare combinations count little."""
_ERRORS = 5.0
"""Minimum gain in standard errors. The bound is higher than two, because the best of up to 1,770 pairs is chosen."""
_GAIN = 0.005
"""Minimum gain, as a share of the variance that the separate effects leave."""
_MOST = 3
"""Maximum number of crosses."""
_BUCKETS = 4
"""Number of buckets per combination, so that few combinations share a bucket."""
_CLASSES = 20
"""Maximum number of classes. The residuals have a column per class."""

_Floats: TypeAlias = npt.NDArray[np.float64]
_Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CrossChoice:
    """A pair of columns that becomes a cross feature.

    Attributes:
      columns: Names of the columns.
      buckets: Number of buckets of the hash.
      why: How much it predicts, as a comment in the config.
    """

    columns: tuple[str, str]
    buckets: int
    why: str

    @property
    def name(self) -> str:
        """Name of the cross in `features.crosses`."""
        return "_and_".join(self.columns)


def find_crosses(
    table: Table, task: LearningTask, columns: Mapping[str, FeatureChoice | ExcludedColumn]
) -> tuple[CrossChoice, ...]:
    """Find pairs of columns of texts or whole numbers whose combination predicts the label.

    The separate effects are learned first: a ridge regression of the label on the categories and the bins of all
    features. For each pair, the mean residual per combination is learned in other folds, and its gain is the decrease
    of the squared residuals beyond the decrease by either column alone (as in Lou, Caruana, Gehrke and Hooker,
    Accurate intelligible models with pairwise interactions, KDD 2013). Pairs are chosen one after the other, because
    several may show the same interaction.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.
    """
    rows = np.flatnonzero(np.isfinite(task.values))
    if len(rows) < _ROWS[0] or len(task.classes) > _CLASSES:
        return ()
    random = np.random.default_rng(0)
    rows = np.sort(random.permutation(rows)[: _ROWS[1]])
    features = {
        name: table.columns[name].take(pa.array(rows))
        for name, column in columns.items()
        if isinstance(column, FeatureChoice) and kind(table.columns[name]) != "lists"
    }
    codes = {
        name: _encode(column)
        for name, column in features.items()
        if kind(column) in ("bytes", "int") and not _is_split(columns[name])
    }
    codes = {name: values for name, values in codes.items() if 1 < values.max() + 1 <= _VALUES}
    if len(codes) < 2:
        return ()
    folds = random.permutation(len(rows)) % _FOLDS
    residuals = _compute_residuals(features, _compute_targets(task, rows), folds)
    return tuple(_choose_pairs(dict(itertools.islice(codes.items(), _COLUMNS)), residuals, folds))


def _choose_pairs(codes: Mapping[str, _Ints], residuals: _Floats, folds: _Ints) -> Iterator[CrossChoice]:
    """Yield the pair with the greatest gain, then the one with the greatest gain on what remains, and so on."""
    pairs = list(itertools.combinations(codes, 2))
    for _ in range(_MOST):
        squares = np.square(residuals).sum(axis=1)
        alone = {name: squares - _square_remainder(values, residuals, folds) for name, values in codes.items()}
        gains: dict[tuple[str, str], tuple[float, float]] = {}
        for pair in pairs:
            gain = squares - _square_remainder(_combine(codes, pair), residuals, folds)
            gain -= np.maximum(alone[pair[0]].mean(), 0) + np.maximum(alone[pair[1]].mean(), 0)
            gains[pair] = float(gain.mean()), float(gain.std() / len(gain) ** 0.5)
        significant = [
            pair for pair, (gain, error) in gains.items() if gain > max(_ERRORS * error, _GAIN * squares.mean())
        ]
        if not significant:
            return
        best = max(significant, key=lambda pair: gains[pair][0])
        gain, error = gains[best]
        share = 100 / squares.mean()
        combined = _combine(codes, best)
        yield CrossChoice(
            best,
            max(16, _BUCKETS * (int(combined.max()) + 1)),
            f"the combination predicts {gain * share:.1f} ± {error * share:.1f} % of what the columns alone leave",
        )
        residuals = residuals - _learn_means(combined, residuals, folds)
        pairs.remove(best)


def _compute_targets(task: LearningTask, rows: _Ints) -> _Floats:
    """Return the numbers to predict, [rows, 1], or an indicator per class, [rows, classes]."""
    labels = task.values[rows]
    if task.task == "multiclass":
        return np.asarray(labels[:, np.newaxis] == np.unique(labels), np.float64)
    if task.task == "regression":
        # Ranks keep a few extreme labels from deciding.
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        labels = ((np.cumsum(counts) - (counts - 1) / 2) / len(labels))[inverse]
    return labels[:, np.newaxis]


def _compute_residuals(features: Mapping[str, pa.Array], targets: _Floats, folds: _Ints) -> _Floats:
    """Return the labels minus their predictions from separate effects, which other folds have learned."""
    matrix = np.stack([_encode(column) if kind(column) == "bytes" else _bin(column) for column in features.values()], 1)
    effects = OneHotEncoder(
        max_categories=_VALUES, handle_unknown="infrequent_if_exist", dtype=np.float32
    ).fit_transform(matrix)
    predicted = np.empty_like(targets)
    for fold in range(_FOLDS):
        model = Ridge(alpha=1.0).fit(effects[folds != fold], targets[folds != fold])
        predicted[folds == fold] = model.predict(effects[folds == fold]).reshape(-1, targets.shape[1])
    return targets - predicted


def _square_remainder(codes: _Ints, residuals: _Floats, folds: _Ints) -> _Floats:
    """Return the squared residuals that remain after the means per code, summed over classes, shape [rows]."""
    remainder: _Floats = np.square(residuals - _learn_means(codes, residuals, folds)).sum(axis=1)
    return remainder


def _learn_means(codes: _Ints, residuals: _Floats, folds: _Ints) -> _Floats:
    """Return the smoothed mean residual of the rows of other folds with the same code, shape [rows, classes]."""
    size = int(codes.max()) + 1
    cells = codes * _FOLDS + folds
    counts = np.bincount(cells, minlength=size * _FOLDS).reshape(size, _FOLDS)
    other_counts = counts.sum(axis=1, keepdims=True) - counts
    means = np.empty_like(residuals)
    for column in range(residuals.shape[1]):
        sums = np.bincount(cells, residuals[:, column], size * _FOLDS).reshape(size, _FOLDS)
        means[:, column] = ((sums.sum(axis=1, keepdims=True) - sums) / (other_counts + _SMOOTHING))[codes, folds]
    return means


def _combine(codes: Mapping[str, _Ints], pair: tuple[str, str]) -> _Ints:
    """Return a number for each combination that occurs, from 0, shape [rows]."""
    first, second = (codes[name] for name in pair)
    _, combined = np.unique(first * (int(second.max()) + 1) + second, return_inverse=True)
    return np.asarray(combined, np.int64)


def _encode(column: pa.Array) -> _Ints:
    """Return a number from 0 for each value, and one for missing values, shape [rows]."""
    indices = np.asarray(column.dictionary_encode().indices.fill_null(-1), np.int64)
    return indices + 1 if column.null_count else indices


def _bin(column: pa.Array) -> _Ints:
    """Return the quantile bin of each number, and a bin for missing numbers, shape [rows]."""
    values = numbers(column)
    finite = values[np.isfinite(values)]
    edges = np.unique(np.quantile(finite, np.arange(1, _BINS) / _BINS)) if len(finite) else np.empty(0)
    return np.where(np.isfinite(values), np.searchsorted(edges, values, side="right") + 1, 0).astype(np.int64)


def _is_split(column: FeatureChoice | ExcludedColumn) -> bool:
    """Return whether a column contains texts of several values or words."""
    return isinstance(column, FeatureChoice) and any(
        isinstance(op, dict) and next(iter(op)) in ("split", "text", "date_parts") for op in column.ops
    )
