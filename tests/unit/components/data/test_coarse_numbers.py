"""Columns that float32 stores too coarsely are found in TFDV's statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from components.data.coarse_numbers import CoarseNumbers, find_coarse_numbers

RANDOM = np.random.default_rng(3)


def find(values: Sequence[float] | np.ndarray) -> list[CoarseNumbers]:
    """Search the column `x` for coarse values. TFDV reads float32, which is the type that is stored."""
    stored = pd.DataFrame({"x": np.asarray(values, np.float32)})
    return list(find_coarse_numbers(tfdv.generate_statistics_from_dataframe(stored).datasets[0]))


@pytest.mark.parametrize(
    "values",
    [1.7e9 + RANDOM.uniform(0, 3600, 200), -41.8781 + RANDOM.normal(0, 1e-5, 200)],
    ids=["seconds of an hour since 1970", "degrees within a metre"],
)
def test_values_that_differ_by_few_float32_steps_are_found(values: np.ndarray) -> None:
    [coarse] = find(values)
    stored = values.astype(np.float32)
    greatest = np.abs(stored).max()
    assert (coarse.column, coarse.step) == ("x", float(np.spacing(greatest)))
    assert coarse.greatest == pytest.approx(float(greatest), rel=1e-6, abs=0.0)
    assert coarse.deviation == pytest.approx(float(stored.astype(float).std()), rel=1e-6, abs=1e-9)
    assert coarse.deviation < 100 * coarse.step


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


def test_integers_are_not_coarse() -> None:
    stored = pd.DataFrame({"x": np.arange(20) + 1_700_000_000_000})
    assert list(find_coarse_numbers(tfdv.generate_statistics_from_dataframe(stored).datasets[0])) == []
