"""Tests of the tensors of the Open Inference Protocol: raw bytes, values of JSON, and invalid requests."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from components.serving.server import inference_rest
from components.serving.server.errors import RequestError
from components.serving.server.inference_tensors import Tensor, describe, get_datatype, to_arrays, to_raw, to_values
from components.serving.server.saved_model import Signature, TensorSpec

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NAMES = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
NAMES |= {f"{sign.upper()}{bits}": f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)}
"""Data type → NumPy's name."""


def signature(**dtypes: Any) -> Signature:
    return Signature("s", {name: TensorSpec(dtype, None) for name, dtype in dtypes.items()}, {}, None)


def convert(datatype: str, shape: list[Any], data: Any) -> Any:
    return to_arrays({"x": Tensor(datatype, shape, data)}, signature())["x"]


@settings(deadline=None)
@given(
    st.sampled_from(sorted(NAMES)).flatmap(lambda name: st.tuples(st.just(name), arrays.arrays(NAMES[name], SHAPES)))
)
def test_raw_bytes_are_numpys_own(case: tuple[str, Any]) -> None:
    datatype, array = case
    content = array.tobytes()
    assert (get_datatype("x", array), to_raw(array)) == (datatype, content)
    converted = convert(datatype, list(array.shape), content)
    assert converted.dtype == array.dtype
    np.testing.assert_array_equal(converted, array)


@settings(deadline=None)
@given(arrays.arrays(object, SHAPES, elements=st.binary(max_size=9)))
def test_strings_are_preceded_by_their_length(array: Any) -> None:
    content = b"".join(struct.pack("<I", len(value)) + value for value in array.ravel())
    assert to_raw(array) == content
    assert convert("BYTES", list(array.shape), content).tolist() == array.tolist()


def test_bfloat16_is_read_and_written() -> None:
    array = np.array([[1.5, -2.0]], tf.bfloat16.as_numpy_dtype)
    # The upper half of a float32.
    content = struct.pack("<HH", 0x3FC0, 0xC000)
    assert (get_datatype("x", array), to_raw(array), to_values("x", array)) == ("BF16", content, [1.5, -2.0])
    np.testing.assert_array_equal(convert("BF16", [1, 2], content), array)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "expected"),
    [
        ("FP32", [2, 2], [1, 2.5, 3, 4], [[1, 2.5], [3, 4]]),
        ("FP32", [2, 2], [[1, 2.5], [3, 4]], [[1, 2.5], [3, 4]]),
        ("INT64", [], [7], 7),
        ("BYTES", [2], ["ä", {"b64": "AA=="}], ["ä".encode(), b"\0"]),
        ("BOOL", [1], [True], [True]),
        ("FP64", [0], [], []),
    ],
)
def test_json_values(datatype: str, shape: list[int], data: list[Any], expected: Any) -> None:
    assert convert(datatype, shape, data).tolist() == expected


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("FLOAT", [1], [1], "input 'x': expected a datatype of BOOL, UINT8"),
        ("FP32", [2], [1], "expected 2 elements for shape [2], received 1"),
        ("FP32", [2], bytes(4), "expected 2 elements for shape [2], received 1"),
        ("FP32", [1], bytes(5), "expected a multiple of 4 bytes, received 5"),
        ("FP32", [-1], [1], "expected a shape of at most 32 sizes, received [-1]"),
        ("FP32", [1.0], [1], "expected a shape"),
        ("FP32", [True], [1], "expected a shape"),
        ("FP32", [1] * 33, [1], "expected a shape of at most 32 sizes"),
        ("FP32", [1 << 40], [1], "elements for shape"),
        ("FP32", [1 << 61] * 32, [1], "elements for shape"),
        ("FP32", [1 << 62], [1], "expected a shape"),
        ("FP32", [0, 1 << 61, 1 << 61], [], "input 'x': "),
        ("INT8", [1], [128], "input 'x': expected int8"),
        ("INT64", [1], [1.5], "input 'x': expected int64"),
        ("BYTES", [1], b"\1\0\0", "expected strings with their lengths"),
        ("BYTES", [1], b"\1\0\0\0", "expected strings with their lengths"),
        ("BYTES", [1], b"\xff\xff\xff\xff", "expected strings with their lengths"),
        ("FP32", [2, 2], [[1, 2], [3]], "in lists of one length"),
    ],
)
def test_invalid_tensors_are_rejected(datatype: str, shape: list[Any], data: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        convert(datatype, shape, data)
    assert message in str(caught.value)


def test_another_datatype_than_the_signatures_is_rejected() -> None:
    with pytest.raises(RequestError, match="input 'x': expected the datatype FP32, received FP64"):
        to_arrays({"x": Tensor("FP64", [1], [1.0])}, signature(x=tf.float32))


def test_null_is_a_missing_value_where_the_signature_pads() -> None:
    inputs = {"x": TensorSpec(tf.float32, (-1,)), "past": TensorSpec(tf.int64, (-1, -1))}
    tensors = {"x": Tensor("FP32", [2], [None, 1]), "past": Tensor("INT64", [2, 2], [None, [1, 2]])}
    converted = to_arrays(tensors, Signature("raw", inputs, {}, None, pads=True))
    np.testing.assert_array_equal(converted["x"], [np.nan, 1])
    assert converted["past"].tolist() == [[-(2**63)] * 2, [1, 2]]


def test_outputs_that_the_protocol_cannot_represent() -> None:
    with pytest.raises(RequestError, match="output 'y': the protocol cannot represent complex64"):
        get_datatype("y", np.zeros(1, np.complex64))
    with pytest.raises(RequestError, match=r"output 'y': expected UTF-8 for JSON: .*; request it with binary_data"):
        to_values("y", np.array([b"\xff"], object))


def test_specs_are_described() -> None:
    specs = {"x": TensorSpec(tf.float32, (-1, 2)), "y": TensorSpec(tf.complex64, None)}
    assert describe(specs) == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "y", "datatype": "complex64", "shape": [-1]},
    ]


INPUT = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
BINARY = {"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}


def test_body_with_raw_bytes_of_some_inputs() -> None:
    parameters = {"signature_name": "raw", "binary_data_output": True, "priority": 1}
    outputs = [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}]
    inputs = [BINARY, {**INPUT, "name": "y"}, {**BINARY, "name": "z"}]
    head = json.dumps({"id": "7", "parameters": parameters, "inputs": inputs, "outputs": outputs}).encode()
    body = inference_rest.parse(head + b"aaaabbbb", str(len(head)))
    assert (body.id, body.signature, body.outputs) == ("7", "raw", {"a": True, "b": False})
    assert {name: tensor.data for name, tensor in body.tensors.items()} == {"x": b"aaaa", "y": [1.0], "z": b"bbbb"}


@pytest.mark.parametrize(
    ("request_", "length", "tail", "message"),
    [
        ({}, None, b"", "inputs: expected a list, received null"),
        ({"inputs": [1]}, None, b"", "inputs[0]: expected an object, received an integer"),
        ({"inputs": [{**INPUT, "name": 1}]}, None, b"", "inputs[0].name: expected a string, received an integer"),
        ({"inputs": [{**INPUT, "shape": 1}]}, None, b"", "inputs[0].shape: expected a list, received an integer"),
        ({"inputs": [{**INPUT, "data": None}]}, None, b"", "inputs[0].data: expected a list, received null"),
        ({"inputs": [INPUT, INPUT]}, None, b"", "inputs[1]: expected every input once, received 'x' again"),
        ({"inputs": [INPUT], "parameters": []}, None, b"", "parameters: expected an object, received a list"),
        ({"inputs": [INPUT], "parameters": {"signature_name": 1}}, None, b"", "parameters.signature_name: expected"),
        ({"inputs": [INPUT], "outputs": [{"name": None}]}, None, b"", "outputs[0].name: expected a string"),
        (
            {"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"classification": 3}}]}, None, b"",
            "outputs[0].parameters: expected binary_data, received 'classification'",
        ),
        ({"inputs": [BINARY]}, None, b"", "inputs[0]: expected 4 bytes of binary data, received 0"),
        ({"inputs": [BINARY]}, 0, b"abc", "inputs[0]: expected 4 bytes of binary data, received 3"),
        ({"inputs": [BINARY]}, 0, b"abcde", "bytes, of which inputs declare binary_data_size, received"),
        ({"inputs": [INPUT]}, 1, b"", "Inference-Header-Content-Length: expected at most"),
        ({"inputs": [INPUT]}, -1, b"", "expected a JSON object"),
        ({"inputs": [INPUT]}, 10**18, b"", "Inference-Header-Content-Length: expected at most"),
    ],
)  # fmt: skip
def test_invalid_bodies_are_rejected(request_: Any, length: int | None, tail: bytes, message: str) -> None:
    """`length` is the difference between the declared and the true length of the JSON object; None for no header."""
    head = json.dumps(request_).encode()
    with pytest.raises(RequestError) as caught:
        inference_rest.parse(head + tail, None if length is None else str(len(head) + length))
    assert message in str(caught.value)
