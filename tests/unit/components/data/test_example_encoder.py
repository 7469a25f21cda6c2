"""Rows are encoded to the same bytes of tf.Examples as by protobuf."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.data.example_encoder import encode
from components.data.examples import to_lists

pytestmark = pytest.mark.both_lines

_INT64 = st.integers(-(2**63), 2**63 - 1)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def feature(value: Any, type_: pa.DataType) -> tf.train.Feature:
    """Return a value as a protobuf feature. The feature of a missing value does not have a kind."""
    if value is None or pa.types.is_null(type_):
        return tf.train.Feature()
    item, values = (type_.value_type, value) if pa.types.is_list(type_) else (type_, [value])
    if item == pa.int64():
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if item == pa.float32():
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def encode_by_protobuf(block: pa.RecordBatch) -> list[bytes]:
    rows = []
    for row in range(block.num_rows):
        features = {
            name: feature(column[row].as_py(), column.type)
            for name, column in zip(block.schema.names, block.columns, strict=True)
        }
        full = tf.train.Example(features=tf.train.Features(feature=features))
        rows.append(full.SerializeToString(deterministic=True))
    return rows


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Draw record batches of any columns; their arrays may have an offset."""
    total = draw(st.integers(0, 8))
    columns = {}
    # Names have several lengths, and some are not ASCII. None of them is a prefix of another name, because the releases
    # of protobuf order such names differently.
    for name in draw(st.lists(st.sampled_from(["a", "b" * 130, "é", "z z", "_"]), unique=True, max_size=4)):
        type_ = draw(st.sampled_from([pa.int64(), pa.float32(), pa.binary(), pa.null()]))
        values = {
            pa.int64(): st.one_of(st.integers(-3, 200), _INT64),
            pa.float32(): st.floats(width=32),
            pa.binary(): st.one_of(st.binary(max_size=4), st.integers(120, 140).map(bytes)),
            pa.null(): st.none(),
        }[type_]
        if not pa.types.is_null(type_) and draw(st.booleans()):
            values, type_ = st.lists(values, max_size=draw(st.sampled_from([0, 3, 40]))), pa.list_(type_)
        if draw(st.booleans()):
            values = st.one_of(st.none(), values)
        columns[name] = pa.array(draw(st.lists(values, min_size=total, max_size=total)), type_)
    start = draw(st.integers(0, total))
    arrays = [column.slice(start, draw(st.just(total - start))) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays or [pa.nulls(total)], list(columns) or ["n"])


@settings(max_examples=150, deadline=None)
@given(batches())
@example(batch(a=pa.array([], pa.int64()), b=pa.array([], pa.list_(pa.binary())), c=pa.nulls(0)))
@example(batch(a=pa.array([[], [], None], pa.list_(pa.binary()))))
@example(batch(a=pa.array([2**63 - 1, -(2**63), -1, 127, 128])))
@example(batch(a=pa.array([math.nan, math.inf, -math.inf, -0.0, 1e-45], pa.float32())))
def test_rows_are_encoded_as_protobuf_encodes_them(block: pa.RecordBatch) -> None:
    assert encode(block).to_pylist() == encode_by_protobuf(block)
    assert encode(to_lists(block)).to_pylist() == encode_by_protobuf(block)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 65_535, 65_536, 3_000_000])
def test_values_of_any_length_are_encoded(size: int) -> None:
    block = batch(
        one=pa.array([b"x" * size, b"", None], pa.binary()),
        some=pa.array([[b"x" * size, b"y"], [], None], pa.list_(pa.binary())),
        many=pa.array([[-1] * (size // 100), [1], None], pa.list_(pa.int64())),
        more=pa.array([[0.5] * (size // 100), [], [1]], pa.list_(pa.float32())),
    )
    assert encode(block).to_pylist() == encode_by_protobuf(block)


def test_missing_value_is_a_feature_without_a_kind() -> None:
    """TFX's CsvExampleGen also omits the kind. TFDV, and thus the data gate, would count an empty list as a value."""
    block = batch(count=pa.array([1, None]), shop=pa.array([None, b"x"], pa.binary()), empty=pa.nulls(2))
    kinds = [
        {
            name: feature.WhichOneof("kind")
            for name, feature in tf.train.Example.FromString(row).features.feature.items()
        }
        for row in encode(block).to_pylist()
    ]
    assert kinds == [
        {"count": "int64_list", "empty": None, "shop": None},
        {"count": None, "empty": None, "shop": "bytes_list"},
    ]


def test_encoding_does_not_depend_on_the_order_of_columns() -> None:
    columns = {"b": pa.array([1]), "a": pa.array([b"x"], pa.binary()), "é": pa.array([0.5], pa.float32())}
    encoded = {encode(batch(**{name: columns[name] for name in order}))[0] for order in itertools.permutations(columns)}
    assert len({row.as_py() for row in encoded}) == 1


def test_all_bits_of_a_float_are_preserved() -> None:
    bits = np.array([0x7FC00001, 0xFFC00000, 0x80000000, 1], np.uint32)
    (row,) = encode(batch(a=pa.array([bits.view(np.float32).tolist()], pa.list_(pa.float32())))).to_pylist()
    values = tf.train.Example.FromString(row).features.feature["a"].float_list.value
    assert [math.isnan(value) for value in values] == [True, True, False, False]
    assert list(values)[2:] == [0.0, float(np.float32(1e-45))]
