"""What gRPC's clients are sent, byte by byte; how requests are answered is in tests/contract/test_serving_apis.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorflow_serving.apis import predict_pb2

from components.serving.server import grpc_api

SHAPES = arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=150)
ARRAYS = st.one_of(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]).flatmap(
        lambda dtype: arrays.arrays(dtype, SHAPES, fill=arrays.from_dtype(np.dtype(dtype)))
    ),
    arrays.arrays(object, st.integers(0, 3), elements=st.binary(max_size=300)),
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3))
def test_the_parts_of_an_answer_are_one_message(outputs: dict[str, Any]) -> None:
    parts = [grpc_api._told("m", 3, "s"), *(grpc_api._output(name, array) for name, array in outputs.items())]
    answer = predict_pb2.PredictResponse.FromString(b"".join(parts))
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 3, "s")
    assert answer.outputs.keys() == outputs.keys()
    for name, array in outputs.items():
        received = tf.make_ndarray(answer.outputs[name])
        assert (received.dtype, received.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(received, array)


def test_the_numbers_of_an_answer_are_its_own() -> None:
    """What stands before them is the same for all that look alike."""
    for value in (1.0, 2.0):
        answer = predict_pb2.PredictResponse.FromString(grpc_api._output("y", np.array([value, 0.0], np.float32)))
        assert tf.make_ndarray(answer.outputs["y"]).tolist() == pytest.approx([value, 0.0])
