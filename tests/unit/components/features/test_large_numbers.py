"""Numbers that float32 cannot hold exactly are transformed as NumPy's float64 formulas do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from components.features import leakage, ops
from components.features.analysis import Requirement
from components.features.column_group import Columns
from components.features.compact import CompactFeatures
from components.features.config import FeaturesConfig
from components.features.host.preprocessing import _Column, _Feature
from pipeline.authoring.scaffold.sample import numbers
from tests.support.data.tolerances import rounding

pytestmark = pytest.mark.both_lines
Values = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)
COLUMNS: dict[str, Values] = {
    "epochs in milliseconds": 1_700_000_000_000 + RANDOM.integers(0, 3_600_000, 500),
    "numbers beyond 2**24": 2**24 + np.arange(500),
    "amounts in cents": 10**12 + RANDOM.integers(0, 10**9, 500),
    "largest floats": np.linspace(-3.3e38, 3.3e38, 500).astype(np.float32),
}
OPERATIONS_ON_NUMBERS: dict[str, tuple[dict[str, Any], Callable[[Values], Values]]] = {
    "z_score": ({}, lambda x: (x - x.mean()) / x.std()),
    "min_max": ({}, lambda x: (x - x.min()) / (x.max() - x.min())),
    "log": ({}, lambda x: _z_score(np.sign(x) * np.log1p(np.abs(x)))),
    "clip": ({"low": -1e39, "high": 1.7e12 + 1e6}, lambda x: _z_score(np.clip(x, -1e39, 1.7e12 + 1e6))),
}
TOLERANCE = rounding(8, largest=2.0)
"""Tolerance of a quotient of float64 numbers that is rounded to float32. The largest z-score is below 2."""


def _z_score(x: Values) -> Values:
    return np.asarray((x - x.mean()) / (x.std() or 1.0))


def analyze(requirement: Requirement) -> Values:
    accumulator = requirement.accumulator()
    values = [tensor.numpy() for tensor in requirement.tensors]
    states = [accumulator.add(accumulator.empty(), *(part[half::2] for part in values)) for half in (0, 1)]
    return np.asarray(accumulator.result(accumulator.prune(accumulator.merge(*states))))


def transform_by_both(op: dict[str, Any], values: Values) -> tuple[Values, Values]:
    """Return a feature as the transform graph computes it and as the reference for devices computes it."""
    [feature] = FeaturesConfig.model_validate({"columns": {"x": op}}).declared
    [group] = ops.group([feature], Columns({"x": tf.constant(values[:, np.newaxis])}))
    result = None if group.requirement is None else analyze(group.requirement)
    graph_values = ops.apply(group, None if result is None else tf.constant(result))[feature.name].numpy()
    content = {"name": "x", "op": feature.op.op, "columns": ["x"], "options": feature.op.model_dump()}
    content["analysis"] = () if result is None else result[:, 0].tolist()
    dtype = "float" if values.dtype == np.float32 else "int"
    return graph_values, _Feature(content)({"x": _Column(values.tolist(), dtype)})


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("op", OPERATIONS_ON_NUMBERS)
def test_small_differences_between_large_numbers_are_preserved(op: str, name: str) -> None:
    options, formula = OPERATIONS_ON_NUMBERS[op]
    expected = formula(COLUMNS[name].astype(np.float64))
    for transformed in transform_by_both({op: options}, COLUMNS[name]):
        assert transformed.dtype == np.float32
        TOLERANCE.assert_close(transformed, expected)


@pytest.mark.parametrize("name", COLUMNS)
def test_buckets_and_bins_have_equal_numbers_of_values(name: str) -> None:
    for ids in transform_by_both({"bucketize": {"buckets": 5}}, COLUMNS[name]):
        assert np.bincount(ids).tolist()[1:] == pytest.approx([100] * 5, abs=5)
    compact, device_values = transform_by_both({"piecewise_linear": {"bins": 4}}, COLUMNS[name])
    expanded = CompactFeatures({}, {"x": 4}).expand({"x": tf.constant(compact)})["x"].numpy()
    np.testing.assert_array_equal(expanded, device_values)
    for bins in (expanded, device_values):
        # A bin is 1 for values from its upper edge on. A quarter, a half and three quarters of the values are below
        # the upper edges of the first three bins.
        assert (bins < 1).mean(axis=0).tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.03)


def test_identifiers_beyond_2_53_are_distinguished() -> None:
    labels = np.arange(1000) // 500
    first = 2**60
    ordered, shuffled = pa.array(first + np.arange(1000)), pa.array(first + RANDOM.permutation(1000))
    result = leakage.find({"ordered": ordered, "shuffled": shuffled}, labels.astype(float), "binary")
    assert [(leak.column, leak.kind) for leak in result.leaks] == [("ordered", "order")]
    extremes = pa.array([-(2**63), 2**63 - 1, None] * 400)
    assert leakage.find({"x": extremes}, labels[:1200].astype(float).repeat(2)[:1200], "binary").unknown is None
    np.testing.assert_array_equal(numbers(extremes)[:3], [-(2.0**63), 2.0**63, np.nan])
