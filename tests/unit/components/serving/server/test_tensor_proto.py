"""Tests of converting TensorProto messages to arrays and back, and of rejecting invalid messages.

In particular, a message must not declare more elements than it contains.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorflow.core.framework import tensor_pb2

from components.serving.server.errors import RequestError
from components.serving.server.saved_model import from_proto, to_proto
from tests.support.servers.serving import proto

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NUMBERS = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.bool_]
NUMBERS += [np.uint8, np.uint16, np.uint32, np.uint64, np.complex64, np.complex128]
ARRAYS = st.one_of(
    st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)),
    arrays.arrays(object, SHAPES, elements=st.binary(max_size=9)),
)


def get_rejection(message: Any) -> str:
    with pytest.raises(RequestError) as caught:
        from_proto(message)
    return str(caught.value)


@settings(deadline=None)
@given(ARRAYS)
def test_arrays_are_equal_after_a_round_trip(array: Any) -> None:
    raw, typed = tensor_pb2.TensorProto(), tensor_pb2.TensorProto()
    to_proto(array, raw)
    to_proto(array, typed, typed=True)
    for sent in (raw, typed, tf.make_tensor_proto(array)):
        received = from_proto(type(sent).FromString(sent.SerializeToString()))
        assert (received.dtype, received.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(received, array)
    np.testing.assert_array_equal(tf.make_ndarray(raw), array)
    np.testing.assert_array_equal(tf.make_ndarray(typed), array)


@pytest.mark.parametrize(
    ("dtype", "field"),
    [
        (np.float32, "float_val"), (np.float64, "double_val"), (np.int64, "int64_val"), (np.bool_, "bool_val"),
        (np.uint32, "uint32_val"), (np.uint64, "uint64_val"),
        *((dtype, "int_val") for dtype in (np.int8, np.int16, np.int32, np.uint8, np.uint16)),
    ],
)  # fmt: skip
def test_typed_numbers_are_in_the_field_that_tensorflow_serving_fills(dtype: Any, field: str) -> None:
    message = tensor_pb2.TensorProto()
    to_proto(np.array([[1], [0]], dtype), message, typed=True)
    assert [*getattr(message, field)] == [1, 0]
    assert not message.tensor_content


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (proto(1, [2, 2], float_val=[1.5]), [[1.5, 1.5], [1.5, 1.5]]),
        (proto(3, [3], int_val=[1, 2]), [1, 2, 2]),
        (proto(3, [2]), [0, 0]),
        (proto(7, [2], string_val=[b"a\0"]), [b"a\0", b"a\0"]),
        (proto(7, [2]), ["", ""]),
        (proto(7, [2], string_val=[b"a", b"b"]), [b"a", b"b"]),
        (proto(1, []), 0.0),
    ],
)
def test_last_value_is_repeated_to_fill_the_shape(sent: Any, expected: Any) -> None:
    assert from_proto(sent).tolist() == expected


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        (proto(1, [-1], float_val=[1]), "is not valid"),
        (proto(1, [-1, -1], float_val=[1]), "is not valid"),
        (proto(1, [1] * 33, float_val=[1]), "33 dimensions"),
        (proto(1, [1 << 40], float_val=[1]), "expected 1099511627776 elements, received"),
        (proto(7, [1 << 28], string_val=[b"a"]), "elements, received"),
        (proto(1, [1 << 62, 1 << 62, 0], float_val=[]), "shape"),
        (proto(1, [2], float_val=[1, 2, 3]), "dtype 1 and shape [2]"),
        (proto(7, [2], string_val=[b"a"] * 3), "dtype 7 and shape [2]"),
        (proto(1, [2], tensor_content=b"123"), "dtype 1 and shape [2]"),
        (proto(1, [2], tensor_content=b"1" * 16), "dtype 1 and shape [2]"),
        (proto(7, [2], tensor_content=b"1" * 16), "dtype 7 and shape [2]"),
        (proto(0, [1]), "dtype 0"),
        (proto(20, [1]), "dtype 20"),
        (proto(21, [1]), "dtype 21"),
        (proto(99, [1]), "dtype 99"),
        (proto(101, [1], float_val=[1]), "dtype 101"),
    ],
)
def test_invalid_messages_are_rejected(sent: Any, word: str) -> None:
    assert word in get_rejection(sent)


def test_unknown_rank_is_rejected() -> None:
    sent = proto(1, [], float_val=[1])
    sent.tensor_shape.unknown_rank = True
    assert "is not valid" in get_rejection(sent)


def test_million_dimensions_are_rejected_quickly() -> None:
    sent = proto(1, [])
    sent.tensor_shape.dim.extend([type(sent.tensor_shape.dim.add())(size=1 << 62)] * 500_000)
    before = time.process_time()
    assert "500001 dimensions" in get_rejection(sent)
    assert time.process_time() - before < 1
