"""The expanded compact form of `piecewise_linear` equals the operation's definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from components.features import ops
from components.features.accumulators import EdgesAccumulator
from components.features.column_group import Columns
from components.features.compact import CompactFeatures
from components.features.config import FeaturesConfig
from tests.support.runs.peak_memory import measure_growth

Values = npt.NDArray[Any]
BEYOND = (-np.inf, -3.4e38, -1e9, -1.0, -0.0, 0.0, 0.5, 1.0, 1e9, 3.4e38, np.inf, np.nan)


def compute_by_definition(values: Values, edges: Values) -> Values:
    """Return the positions of values in bins, within [0, 1]. They are 0 in bins of width 0 and for missing values."""
    numbers = np.where(np.isfinite(values), values, 0).astype(np.float64)
    above, width = numbers[:, np.newaxis] - edges[:-1], np.diff(edges)
    position = np.divide(above, width, out=np.zeros_like(above), where=width != 0)
    with np.errstate(over="ignore"):
        clipped = np.clip(position.astype(np.float32), 0, 1)
    return np.where(np.isfinite(values)[:, np.newaxis], clipped, np.float32(0))


def find_edges(values: Values, bins: int) -> Values:
    """Return the edges of the analysis, float64 of shape [bins + 1]."""
    accumulator = EdgesAccumulator(1, bins)
    return np.asarray(accumulator.result(accumulator.add(accumulator.empty(), values))[:, 0])


def compact(values: Values, edges: Values) -> tf.Tensor:
    """Return the compact form that the transform graph writes for a column; NaN means missing."""
    [feature] = FeaturesConfig.model_validate(
        {"columns": {"x": {"piecewise_linear": {"bins": len(edges) - 1}}}}
    ).declared
    [group] = ops.group([feature], Columns({"x": tf.constant(values)}))
    return ops.apply(group, tf.constant(edges[:, np.newaxis]))[feature.name]


def expand(values: Values, edges: Values) -> Values:
    """Return the expanded form that a network reads for a column."""
    expanded = CompactFeatures({}, {"x": len(edges) - 1}).expand({"x": compact(values, edges)})["x"]
    return np.asarray(expanded.numpy())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("distinct", [1, 2, 5, 17, 300])
def test_expansion_equals_the_definition(distinct: int, seed: int) -> None:
    random = np.random.default_rng([distinct, seed])
    sample = random.choice(np.round(random.normal(0, 10.0 ** random.integers(-3, 9), distinct), 3), 500)
    # Use the edges of the analysis: with few distinct values, the last edges are equal.
    edges = find_edges(sample, 16)
    near = np.nextafter(edges.astype(np.float32), random.choice([-np.inf, np.inf], len(edges)).astype(np.float32))
    # TensorFlow flushes subnormal numbers to 0.
    near = near[np.abs(near) > np.finfo(np.float32).tiny]
    values = np.concatenate([sample, edges, near, BEYOND]).astype(np.float32)
    assert compact(values, edges).shape == [len(values), 2]
    np.testing.assert_array_equal(expand(values, edges), compute_by_definition(values, edges))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_bins_of_width_0_come_last(values: list[float]) -> None:
    edges = find_edges(np.array(values), 8)
    widths = np.diff(edges)
    filled = int((widths > 0).sum())
    assert (widths[:filled] > 0).all()
    assert (widths[filled:] == 0).all()
    assert edges[-1] == max(values)


def test_column_without_values_is_0_in_all_bins() -> None:
    edges = find_edges(np.array([]), 4)
    np.testing.assert_array_equal(expand(np.array([np.nan, 3.0], np.float32), edges), np.zeros((2, 4)))


def test_compact_features_are_expanded_and_other_features_are_unchanged() -> None:
    op = FeaturesConfig.model_validate({"columns": {"photo": {"image": {"height": 1, "width": 2}}}}).declared[0].op
    features = CompactFeatures({"photo_image": op}, {"a": 2, "b": 4, "c": 2, "absent": 3})  # type: ignore[dict-item]
    stored = {
        "a": tf.constant([[0, 0.25], [1, 1]], tf.float32),
        "b": tf.constant([[3, 0.5], [0, 0]], tf.float32),
        "c": tf.constant([[1, 0], [0, 1]], tf.float32),
        "ids": tf.constant([4, 5], tf.int64),
        "photo_image": tf.constant([b"", b""]),
    }
    expanded = {name: values.numpy().tolist() for name, values in features.expand(stored).items()}
    assert expanded == {
        "a": [[0.25, 0], [1, 1]],
        "b": [[1, 1, 1, 0.5], [0, 0, 0, 0]],
        "c": [[1, 0], [1, 0]],
        "ids": [4, 5],
        "photo_image": [[0, 0], [0, 0]],
    }
    assert list(expanded) == list(stored)
    again = features.unpack(features.pack(stored))
    assert {name: values.numpy().tolist() for name, values in again.items()} == expanded
    assert features.row_bytes == 4 * (2 + 2 + 4 + 2 + 3)


def test_find_returns_only_compact_features() -> None:
    columns: dict[str, Any] = {"x": ["z_score", {"piecewise_linear": {"bins": 3}}], "y": "vocab"}
    compact_features = CompactFeatures.find(FeaturesConfig.model_validate({"columns": columns}))
    assert (compact_features.images, compact_features.bins) == ({}, {"x_piecewise_linear": 3})
    assert compact_features
    assert not compact_features.only(["x_z_score"])
    assert compact_features.only(["x_piecewise_linear"]) == compact_features


@pytest.mark.extended
def test_large_batch_is_expanded_a_few_rows_at_a_time() -> None:
    columns, bins, rows = 100, 192, 8192
    features = CompactFeatures({}, {f"x{number}": bins for number in range(columns)})
    draw = np.random.default_rng(0)
    index, position = draw.integers(0, bins, [rows, columns]), draw.random([rows, columns], np.float32)
    stored = {
        f"x{number}": tf.constant(np.stack([index[:, number], position[:, number]], axis=1), tf.float32)
        for number in range(columns)
    }

    def predict(part: dict[str, Any]) -> dict[str, Any]:
        return {"sums": tf.add_n([tf.reduce_sum(values, axis=1) for values in features.expand(part).values()])}

    in_parts = tf.function(lambda batch: features.in_parts(predict, batch), autograph=False)
    in_parts({name: values[:1] for name, values in stored.items()})
    with measure_growth() as growth:
        expanded = in_parts(stored)["sums"]
    # The bins below a value are 1, so its bins add up to index + position. A float32 of up to 19,200 has an error of
    # 1e-3, and there are 100 additions.
    np.testing.assert_allclose(expanded, (index + position.astype(np.float64)).sum(axis=1), atol=0.1)
    # Several operations on a part of 32 MiB take about 190 MB, and on all rows about 1,280 MB, twice the size of the
    # expanded features.
    assert growth.peak_bytes < rows * features.row_bytes


def test_batch_of_small_features_is_expanded_at_once() -> None:
    features, calls = CompactFeatures({}, {"x": 48}), list[int]()

    def predict(part: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(part["x"]))
        return features.expand(part)

    assert features.in_parts(predict, {"x": tf.zeros([9000, 2])})["x"].shape == [9000, 48]
    assert calls == [9000]
