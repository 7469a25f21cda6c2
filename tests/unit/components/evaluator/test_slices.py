"""Slices of rows equal the slices that TFMA's slicer computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_model_analysis.slicer import slicer_lib

from components.base.errors import InputError
from components.evaluator.slices import slices_of

pytestmark = pytest.mark.both_lines
SPECS = [
    {},
    {"feature_keys": ["text"]},
    {"feature_keys": ["number"]},
    {"feature_keys": ["text", "number"]},
    {"feature_values": {"text": "b"}},
    {"feature_values": {"text": "5"}},
    {"feature_values": {"number": "5"}},
    {"feature_values": {"size": "0.5"}},
    {"feature_values": {"size": "2"}},
    {"feature_keys": ["size"], "feature_values": {"text": "é", "number": "5"}},
    {"feature_keys": ["missing"]},
    {"feature_values": {"missing": "1"}},
]
ROW = st.fixed_dictionaries(
    {
        "text": st.lists(st.sampled_from(["a", "b", "é", "5", ""]), max_size=3),
        "number": st.lists(st.sampled_from([5, -1, 1 << 40]), max_size=2),
        "size": st.lists(st.sampled_from([0.5, 2.0]), max_size=1),
    }
)
TYPES = {"text": pa.large_binary(), "number": pa.int64(), "size": pa.float32()}


def column(rows: list[Any], name: str) -> pa.Array:
    if name == "missing":
        return pa.nulls(len(rows))
    values = [[value.encode() if isinstance(value, str) else value for value in row[name]] or None for row in rows]
    return pa.array(values, pa.large_list(TYPES[name]))


def features(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.array([value.encode() if isinstance(value, str) else value for value in row[name]]) for name in row
    }


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6), chosen=st.lists(st.sampled_from(SPECS), min_size=1, max_size=5))
def test_slices_are_those_of_tfma(rows: list[Any], chosen: list[Any]) -> None:
    specs = [tfma.SlicingSpec(**spec) for spec in chosen]
    slices = slices_of(len(rows), lambda name: column(rows, name), specs)
    actual = [
        sorted(map(repr, (slices.keys[at] for at in slices.numbers[slices.rows == row]))) for row in range(len(rows))
    ]
    single = [slicer_lib.SingleSliceSpec(spec=spec) for spec in specs]
    expected = [
        sorted(map(repr, set(slicer_lib.get_slices_for_features_dicts([], features(row), single)))) for row in rows
    ]
    assert actual == expected
    assert set(slices.numbers.tolist()) == set(range(len(slices.keys)))


def test_slice_value_that_is_not_utf_8_is_reported() -> None:
    values = pa.array([[b"\xff"]], pa.large_list(pa.large_binary()))
    with pytest.raises(InputError, match=r"slice by text: expected text in UTF-8, received b'\\xff'"):
        slices_of(1, lambda _: values, [tfma.SlicingSpec(feature_keys=["text"])])
