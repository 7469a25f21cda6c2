"""Tests of the means of the label per ID: they equal those by pandas, and a row's own label is not in its mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from components.trainer.label_means import _FOLDS, _SMOOTHING, compute_label_means, make_targets
from tests.support.data.tolerances import float32_sum

COUNT = 2000
MEAN = float32_sum(1, largest=10.0)


def _draw(seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    return random.zipf(1.3, COUNT) % 500, random.normal(size=COUNT), random.uniform(0.1, 2, COUNT)


def _smooth_by_pandas(
    ids: npt.NDArray[np.int64], label: npt.NDArray[np.float64], weight: npt.NDArray[np.float64]
) -> tuple[pd.Series, float]:
    """Return the mean of each ID, and of all rows."""
    total, rows = pd.Series(label * weight).groupby(ids).sum(), pd.Series(weight).groupby(ids).sum()
    mean = float(np.average(label, weights=weight))
    return (total + _SMOOTHING * mean) / (rows + _SMOOTHING), mean


def test_means_equal_those_by_pandas() -> None:
    ids, label, weight = _draw(0)
    label_means = compute_label_means(ids, make_targets(label, 1), weight, seed=1)
    expected, mean = _smooth_by_pandas(ids, label, weight)
    counts = pd.Series(ids).value_counts()
    assert set(label_means.ids) == set(counts.index[counts >= 2]), "one row says too little"
    MEAN.assert_close(label_means.means[:, 0], [mean, *expected[label_means.ids]])


def test_mean_of_a_row_comes_from_the_rows_of_other_folds() -> None:
    ids, label, weight = _draw(0)
    label_means = compute_label_means(ids, make_targets(label, 1), weight, seed=1)
    fold = np.random.default_rng(1).integers(0, _FOLDS, COUNT)
    for number in range(_FOLDS):
        others, own = fold != number, fold == number
        expected, mean = _smooth_by_pandas(ids[others], label[others], weight[others])
        known = {value: expected[value] for value in label_means.ids if value in expected}
        MEAN.assert_close(label_means.out_of_fold[own, 0], [known.get(value, mean) for value in ids[own]])


@pytest.mark.parametrize("row", [0, 7, 1999])
def test_a_label_does_not_change_the_mean_of_its_own_row(row: int) -> None:
    ids, label, weight = _draw(0)
    changed = label.copy()
    changed[row] += 100
    first, second = (
        compute_label_means(ids, make_targets(values, 1), weight, seed=1).out_of_fold for values in (label, changed)
    )
    assert first[row] == second[row]
    assert (first != second).any()


def test_shares_of_the_most_frequent_classes_are_computed() -> None:
    label = np.repeat(np.arange(12), np.arange(12, 0, -1))[::-1]
    targets = make_targets(label, outputs=12)
    np.testing.assert_array_equal(targets, label[:, np.newaxis] == np.arange(8))
    label_means = compute_label_means(np.arange(len(label)) % 3, targets, 1, seed=0)
    assert label_means.means.shape == (4, 8)
    MEAN.assert_close(label_means.means[0], targets.mean(axis=0))
