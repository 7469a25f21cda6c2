"""The quantile sketch is exact for few values, and has a bounded error and size for many values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.features import quantile_sketch
from components.features.quantile_sketch import QuantileSketch

pytestmark = pytest.mark.both_lines


def make_sketch(*batches: Any) -> QuantileSketch:
    sketch = QuantileSketch()
    for batch in batches:
        sketch.add(np.asarray(batch, np.float64))
    return sketch


def rank_error(values: npt.NDArray[Any], sketch: QuantileSketch, count: int = 1000) -> float:
    """Return the largest distance between a quantile's ranks and its expected rank, as a fraction of the values."""
    quantiles, ordered = sketch.quantiles(count), np.sort(values)
    first, last = (np.searchsorted(ordered, quantiles, side=side) / len(values) for side in ("left", "right"))
    expected = np.arange(count + 1) / count
    return float(np.maximum(first - expected, expected - last).max())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-9, 9, width=16) | st.just(float("nan")), max_size=40), max_size=5),
    st.integers(1, 20),
)
def test_quantiles_of_few_values_equal_numpys(batches: list[list[float]], count: int) -> None:
    values = np.array([value for batch in batches for value in batch])
    values = values[~np.isnan(values)]
    expected = np.zeros(count + 1)
    if len(values):
        # Quantile k is the value at rank n * k / count, rounded down.
        places = np.minimum(np.arange(count + 1) * len(values) // count, len(values) - 1)
        expected = np.sort(values)[places]
    np.testing.assert_array_equal(make_sketch(*batches).quantiles(count), expected)


@pytest.mark.parametrize("order", ["random", "ascending", "zigzag"])
@pytest.mark.parametrize("workers", [1, 3])
def test_rank_error_is_bounded(order: str, workers: int) -> None:
    values = np.random.default_rng(0).normal(size=600_000)
    if order != "random":
        values = np.sort(values)
    if order == "zigzag":
        values = np.concatenate([values[::2], values[1::2][::-1]])
    sketches = [make_sketch(*np.array_split(part, 37)) for part in np.array_split(values, workers)]
    for sketch in sketches[1:]:
        sketches[0].merge(pickle.loads(pickle.dumps(sketch)))  # noqa: S301
    levels = np.log2(len(values) / quantile_sketch._VALUES)
    # The 1,000 quantiles are themselves rounded to a rank, which adds an error of one value.
    assert rank_error(values, sketches[0]) <= levels / (2 * quantile_sketch._VALUES) + 1 / len(values)
    quantiles = sketches[0].quantiles(1000)
    assert (quantiles[0], quantiles[-1]) == (values.min(), values.max())


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 4), (np.float64, 8)])
def test_size_grows_with_the_logarithm_of_the_number_of_values(dtype: Any, size: int) -> None:
    sketch = QuantileSketch()
    draw = np.random.default_rng(0)
    sizes = []
    for _ in range(2):
        for _ in range(32):
            sketch.add(draw.normal(size=1 << 14).astype(dtype).astype(np.float64))
        sizes.append(len(pickle.dumps(sketch)))
    # The values fill a single level. The sketch of tfx_bsl needed 32 bytes per value on several levels.
    assert max(sizes) <= (1 << 14) * size * 1.1
    sketch.add(draw.normal(size=(1 << 19) - 1).astype(dtype).astype(np.float64))
    assert len(pickle.dumps(sketch)) <= 7 * (1 << 14) * size * 1.1


def test_numbers_that_float32_cannot_hold_are_exact() -> None:
    values = np.float64([2**24 + 1, 0.1, 2**24 + 3])
    assert make_sketch([1.0], values).quantiles(3).tolist() == [0.1, 1.0, 2**24 + 1, 2**24 + 3]
