"""Columns that float32 can hardly store, found in the statistics that TFDV computes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from components.data.coarse_numbers import CoarseNumbers, find_coarse_numbers

RANDOM = np.random.default_rng(3)


def find(values: Sequence[float] | np.ndarray) -> list[CoarseNumbers]:
    """Find the column `x` of these values if it is coarse; TFDV gets what is stored, float32."""
    stored = pd.DataFrame({"x": np.asarray(values, np.float32)})
    return list(find_coarse_numbers(tfdv.generate_statistics_from_dataframe(stored).datasets[0]))


@pytest.mark.parametrize(
    "values",
    [1.7e9 + RANDOM.uniform(0, 3600, 200), -41.8781 + RANDOM.normal(0, 1e-5, 200)],
    ids=["seconds of an hour since 1970", "degrees within a metre"],
)
def test_values_that_differ_by_few_steps_are_found(values: np.ndarray) -> None:
    [found] = find(values)
    stored = values.astype(np.float32)
    greatest = np.abs(stored).max()
    assert (found.column, found.step) == ("x", float(np.spacing(greatest)))
    assert found.greatest == pytest.approx(float(greatest), rel=1e-6, abs=0.0)
    assert found.deviation == pytest.approx(float(stored.astype(float).std()), rel=1e-6, abs=1e-9)
    assert found.deviation < 100 * found.step


@pytest.mark.parametrize(
    "values",
    [
        1.7e9 + RANDOM.uniform(0, 1e7, 200),
        RANDOM.lognormal(10, 3, 200),
        RANDOM.normal(0, 1e-20, 200),
        [5e9] * 20,
        [float("nan")] * 20,
    ],
    ids=["seconds of months", "amounts", "tiny", "constant", "missing"],
)
def test_other_columns_are_not_found(values: np.ndarray) -> None:
    assert find(values) == []


def test_integers_are_stored_in_full() -> None:
    stored = pd.DataFrame({"x": np.arange(20) + 1_700_000_000_000})
    assert list(find_coarse_numbers(tfdv.generate_statistics_from_dataframe(stored).datasets[0])) == []
