"""Tables of a statistic per value equal scikit-learn's encoder, and do not depend on how the rows were divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.preprocessing import TargetEncoder

from components.base.errors import InputError
from components.features.value_table import MISSING, CountAccumulator, TargetMeanAccumulator, ValueTable
from tests.support.data.tolerances import float32_sum

ROWS, FOLDS = 400, 3
RANDOM = np.random.default_rng(0)
KEYS = RANDOM.zipf(1.5, ROWS) % 40
FOLD = RANDOM.integers(0, FOLDS, ROWS)
LABELS = {
    "binary": (RANDOM.random(ROWS) < (KEYS % 5 + 1) / 7).astype(np.float64),
    "continuous": RANDOM.normal(KEYS, 3.0) + 50,
    "multiclass": KEYS % 2 + RANDOM.integers(0, 3, ROWS),
}
ONES = np.ones(ROWS)


def accumulator(**options: Any) -> TargetMeanAccumulator:
    return TargetMeanAccumulator(**({"size": 1000, "min_frequency": 1, "smoothing": 4.0, "folds": FOLDS} | options))


def arrays(kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the classes and the numbers of the labels of a kind."""
    if kind == "multiclass":
        return LABELS[kind], ONES
    return np.zeros(ROWS, np.int64), LABELS[kind].astype(np.float64)


def make_table(
    kind: str, rows: Any = slice(None), weights: npt.NDArray[np.float64] = ONES, **options: Any
) -> ValueTable:
    classes, labels = arrays(kind)
    means = accumulator(**options)
    state = means.add(means.empty(), *(part[rows] for part in (KEYS, FOLD, classes, labels, weights)))
    return means.result(means.prune(state))


def encode(kind: str, rows: npt.NDArray[Any], keys: npt.NDArray[np.int64], smoothing: float = 4.0) -> Any:
    """Return scikit-learn's means of values, minus the mean of all rows, in units of the standard deviation.

    The columns are in the order of the classes: the most frequent class first, then by number.
    """
    labels = LABELS[kind][rows]
    encoder = TargetEncoder(smooth=smoothing, target_type=kind).fit(KEYS[rows, np.newaxis], labels)
    means = encoder.transform(keys[:, np.newaxis])
    if kind == "multiclass":
        classes, counts = np.unique(labels, return_counts=True)
        order = np.lexsort((classes, -counts))
        means, shares = means[:, order], counts[order] / len(labels)
        return (means - shares) / np.sqrt(shares * (1 - shares))
    return (means - labels.mean()) / labels.std()


@pytest.mark.parametrize("kind", LABELS)
def test_means_are_those_of_scikit_learn(kind: str) -> None:
    table = make_table(kind)
    assert table.keys.tolist() == np.unique(KEYS).tolist()
    float32_sum(8).assert_close(table.values, encode(kind, np.arange(ROWS), table.keys))


@pytest.mark.parametrize("kind", LABELS)
def test_mean_of_a_fold_is_computed_without_the_fold(kind: str) -> None:
    table = make_table(kind)
    for fold in range(FOLDS):
        others = np.flatnonzero(fold != FOLD)
        expected = encode(kind, others, table.keys)
        # scikit-learn also gives the mean of all rows to a value that the other folds lack.
        float32_sum(8).assert_close(table.fold_values[:, fold], expected)


def test_row_of_weight_three_counts_as_three_rows() -> None:
    weights = RANDOM.integers(1, 4, ROWS)
    repeated = np.repeat(np.arange(ROWS), weights)
    # An added row has the mean weight of the rows.
    smoothing = 4.0 * weights.mean()
    expected = encode("continuous", repeated, np.unique(KEYS), smoothing)
    float32_sum(8).assert_close(make_table("continuous", weights=weights.astype(float)).values, expected)
    for weight in (0.0, -1.0, np.nan):
        some = np.where(np.arange(ROWS) % 4 == 0, weight, 1.0)
        rows = np.flatnonzero(np.arange(ROWS) % 4)
        np.testing.assert_array_equal(make_table("binary", weights=some).values, make_table("binary", rows).values)


def test_table_does_not_depend_on_how_rows_are_divided() -> None:
    classes, labels = arrays("binary")
    means = accumulator(size=7, min_frequency=2)
    parts: list[Any] = []
    for part in range(4):
        state = means.empty()
        for rows in np.array_split(np.flatnonzero(part == KEYS % 4), 3):
            state = means.add(state, *(array[rows] for array in (KEYS, FOLD, classes, labels, ONES)))
        parts.append(means.prune(state))
    merged = means.empty()
    for state in reversed(parts):
        merged = means.prune(means.merge(merged, state))
    table, whole = means.result(merged), make_table("binary", size=7, min_frequency=2)
    for name in ("keys", "values", "fold_values"):
        np.testing.assert_array_equal(getattr(table, name), getattr(whole, name))
    assert len(table.keys) == 7


def test_rare_values_are_left_out_but_count_in_the_mean_of_all_rows() -> None:
    values, counts = np.unique(KEYS, return_counts=True)
    table, every = make_table("binary", min_frequency=5), make_table("binary")
    assert table.keys.tolist() == values[counts >= 5].tolist()
    np.testing.assert_array_equal(table.values, every.values[counts >= 5])
    most = make_table("binary", size=3)
    assert sorted(most.keys) == sorted(values[np.lexsort((values, -counts))[:3]])


def test_without_smoothing_or_rows_the_table_is_finite() -> None:
    exact = make_table("continuous", smoothing=0)
    assert np.isfinite(exact.fold_values).all()
    means = accumulator()
    empty = means.result(means.empty())
    assert empty.values.tolist() == [[0]]
    assert empty.fold_values.shape == (1, FOLDS, 1)
    constant = means.add(means.empty(), KEYS, FOLD, np.zeros(ROWS, np.int64), ONES, ONES)
    assert not means.result(constant).values.any()


def test_many_classes_are_refused() -> None:
    means = accumulator()
    classes = np.arange(ROWS) % 17
    state = means.add(means.empty(), KEYS, FOLD, classes, ONES, ONES)
    with pytest.raises(InputError, match=r"expected a label of at most 16 classes, .*, received 17"):
        means.result(state)


@pytest.mark.parametrize("scale", ["log", "share"])
def test_counts_are_numpys(scale: Any) -> None:
    counts = CountAccumulator(1000, 1, scale)
    keys = np.where(np.arange(ROWS) % 10 == 0, MISSING, KEYS)
    zeros = np.zeros(ROWS)
    state = counts.add(counts.empty(), keys, np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64), zeros, ONES)
    table = counts.result(counts.prune(state))
    values, rows = np.unique(keys[keys != MISSING], return_counts=True)
    assert table.keys.tolist() == values.tolist()
    float32_sum(1, largest=8).assert_close(table.values[:, 0], np.log1p(rows) if scale == "log" else rows / ROWS)
    assert counts.result(counts.empty()).values.tolist() == [[0]]
