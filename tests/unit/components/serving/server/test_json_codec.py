"""Tests of converting JSON requests to arrays and outputs to JSON, and of rejecting invalid requests."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import Signature, TensorSpec

DTYPES = [np.float32, np.float64, np.int8, np.int16, np.int32, np.int64]
DTYPES += [np.uint8, np.uint32, np.uint64, np.bool_]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, max_side=4)
FLOAT, INT, TEXT = (TensorSpec(dtype, None) for dtype in (tf.float32, tf.int64, tf.string))


def signature(**specs: TensorSpec) -> Signature:
    return Signature("s", specs, {}, None)


def get_rejection(call: Any, *arguments: Any) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    assert caught.value.http_status == 400
    return str(caught.value)


def encode_bytes(value: Any) -> Any:
    """Encode the bytes in nested lists as base64 objects, as in a request. Other values are returned unchanged."""
    if isinstance(value, list):
        return [encode_bytes(item) for item in value]
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


@settings(deadline=None)
@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_numbers_round_trip(array: Any) -> None:
    body = json.dumps({"inputs": {"x": array.tolist()}}).encode()
    converted = json_codec.inputs(
        json_codec.parse(body), signature(x=TensorSpec(tf.dtypes.as_dtype(array.dtype), None))
    )
    assert converted["x"].dtype == array.dtype
    np.testing.assert_array_equal(converted["x"], array)
    answer = json.loads(json.dumps(json_codec.outputs({"x": array}, by_row=False)))
    np.testing.assert_array_equal(np.array(answer["outputs"], array.dtype), array)


@settings(deadline=None)
@given(arrays.arrays(object, SHAPES, elements=st.binary(max_size=9)))
def test_bytes_round_trip(array: Any) -> None:
    body = json.dumps({"inputs": {"x": encode_bytes(array.tolist())}}).encode()
    converted = json_codec.inputs(json_codec.parse(body), signature(x=TEXT))["x"]
    assert (converted.dtype, converted.shape, converted.tolist()) == (array.dtype, array.shape, array.tolist())
    answer = json.loads(json.dumps(json_codec.outputs({"x_bytes": array}, by_row=False)))
    assert answer["outputs"] == encode_bytes(array.tolist())


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_strings_are_encoded_in_utf_8(texts: list[str]) -> None:
    converted = json_codec.inputs({"instances": texts}, signature(x=TEXT))["x"]
    assert converted.tolist() == [text.encode() for text in texts]
    assert json_codec.outputs({"x": converted}, by_row=True) == {"predictions": texts}


_INFINITE = [float("inf"), -float("inf"), float("inf"), float("inf")]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"instances": [1, 2]}, {"x": [1, 2]}),
        ({"instances": [{"x": 1}, {"x": 2}]}, {"x": [1, 2]}),
        ({"inputs": [1, 2]}, {"x": [1, 2]}),
        ({"inputs": {"x": [1, 2]}}, {"x": [1, 2]}),
        ({"inputs": {}}, {}),
        ({"instances": [1e-3, float("inf"), -1]}, {"x": [np.float32(1e-3), float("inf"), -1]}),
        (json.loads('{"instances": [1e39, -1e39, 1e400, Infinity, 3.4e38]}'), {"x": [*_INFINITE, np.float32(3.4e38)]}),
    ],
)
def test_requests_by_row_and_by_column_are_accepted(request_: Any, expected: dict[str, list[float]]) -> None:
    converted = json_codec.inputs(request_, signature(x=FLOAT))
    assert {name: value.tolist() for name, value in converted.items()} == expected


def test_rows_may_have_several_inputs() -> None:
    request = {"instances": [{"x": 1, "name": "a"}, {"name": {"b64": "/w=="}, "x": 2.5}]}
    converted = json_codec.inputs(request, signature(x=FLOAT, name=TEXT))
    assert (converted["x"].tolist(), converted["name"].tolist()) == ([1, 2.5], [b"a", b"\xff"])


def test_dtypes_that_tensorflow_serving_refuses_are_refused() -> None:
    for dtype in (tf.float16, tf.bfloat16, tf.uint16):
        spec = TensorSpec(dtype, None)
        converted = json_codec.to_array("x", [1, 2], spec)
        assert converted.dtype == dtype.as_numpy_dtype
        expected = f"expected a dtype that TensorFlow Serving converts to JSON, received {dtype.name}"
        with pytest.raises(RequestError, match=f"output 'x': {expected}"):
            json_codec.outputs({"x": converted}, by_row=False)
        with pytest.raises(RequestError, match=f"input 'x': {expected}"):
            json_codec.inputs({"instances": [1]}, signature(x=spec))


LEAST = np.iinfo(np.int64).min


def columns_signature(**specs: TensorSpec) -> Signature:
    """Return a signature of a model of this project, which accepts missing values."""
    return Signature("raw", specs, {}, None, pads=True)


def test_null_is_a_missing_value_in_signatures_of_columns() -> None:
    """JSON.stringify of JavaScript writes NaN, and undefined in a list, as null."""
    specs = {"x": FLOAT, "n": INT, "name": TEXT, "past": TensorSpec(tf.int64, (-1, -1))}
    body = b"""{"instances": [{"x": null, "n": null, "name": null, "past": null},
                                 {"x": 1, "n": 2, "name": "a", "past": [3, null]}]}"""
    converted = json_codec.inputs(json_codec.parse(body), columns_signature(**specs))
    np.testing.assert_array_equal(converted["x"], np.float32([np.nan, 1]))
    assert {name: converted[name].tolist() for name in ("n", "name", "past")} == {
        "n": [LEAST, 2], "name": [b"", b"a"], "past": [[LEAST, LEAST], [3, LEAST]],
    }  # fmt: skip
    assert all(value.dtype == specs[name].dtype.as_numpy_dtype for name, value in converted.items())
    many = {"inputs": {"past": [[0] * 2000, *[None] * 2000]}}
    message = get_rejection(json_codec.inputs, many, columns_signature(past=specs["past"]))
    assert "received null together with a list of 2000 values" in message


# JavaScript rounds an integer to a double and writes the shortest digits that give this double.
@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({"instances": [{"x": 1, "name": "a"}, {"y": 2}]}, {"x", "name"}),
        ({"inputs": {"x": [1], "name": ["a"]}}, {"x", "name"}),
        ({"instances": [{"b64": "AA=="}]}, set()),
        ({"instances": [1, 2]}, set()),
        ({"instances": []}, set()),
        ({"instances": {"x": 1}}, set()),
        ({"inputs": [1]}, set()),
        ({}, set()),
    ],
)
def test_names_of_columns_are_found(request_: dict[str, Any], names: set[str]) -> None:
    assert {*json_codec.column_names(request_)} == names


@pytest.mark.parametrize("text", ["-9223372036854775808", "-9223372036854776000", "-9223372036854776832"])
def test_smallest_integer_is_accepted_as_javascript_writes_it(text: str) -> None:
    assert float(text) == -(2.0**63)
    request = json.loads(f'{{"instances": [{text}, 5]}}')
    assert json_codec.inputs(request, signature(x=INT))["x"].tolist() == [LEAST, 5]


@pytest.mark.parametrize("text", ["-9223372036854776833", "-9223372036854777856", "9223372036854775808", "-1e400"])
def test_other_integers_beyond_int64_are_rejected(text: str) -> None:
    assert "expected int64" in get_rejection(
        json_codec.inputs, json.loads(f'{{"instances": [{text}]}}'), signature(x=INT)
    )


@pytest.mark.parametrize(
    ("answers", "by_row", "expected"),
    [
        ({"y": [1.5, 2.5]}, True, {"predictions": [1.5, 2.5]}),
        ({"y": [1.5], "z": [[1, 2]]}, True, {"predictions": [{"y": 1.5, "z": [1, 2]}]}),
        ({"y": [1.5], "z": [[1, 2]]}, False, {"outputs": {"y": [1.5], "z": [[1, 2]]}}),
        ({"y": 1.5}, True, {"predictions": 1.5}),
        ({"y": 1.5, "z": [1, 2]}, False, {"outputs": {"y": 1.5, "z": [1, 2]}}),
    ],
)
def test_outputs_have_the_format_of_the_request(answers: Any, by_row: bool, expected: Any) -> None:
    assert json_codec.outputs({name: np.array(value) for name, value in answers.items()}, by_row) == expected


@pytest.mark.parametrize("values", [1.5, [1, 2, 3]])
def test_outputs_with_different_numbers_of_rows_are_not_sent_by_row(values: Any) -> None:
    answers = {"y": np.array([1.5, 2.5]), "z": np.array(values)}
    assert "send columns" in get_rejection(json_codec.outputs, answers, True)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "expected a JSON object: Expecting value"),
        (b"{", "expected a JSON object"),
        (b"\xff\xfe{}", "expected a JSON object"),
        (b"[1]", "received a list"),
        (b"null", "received null"),
        (b"[" * 100_000, "recursion"),
        (b'{"instances":' + b"[" * 100_000, "recursion"),
    ],
)
def test_bodies_that_are_not_a_json_object_are_rejected(body: bytes, word: str) -> None:
    assert word in get_rejection(json_codec.parse, body)


DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        ({}, "either instances"),
        ({"instances": [1], "inputs": [1]}, "either instances"),
        ({"instances": []}, "at least one row"),
        ({"instances": {"x": 1}}, "at least one row"),
        ({"instances": [1]}, "its inputs by name: ['name', 'x']"),
        ({"inputs": 1}, "its inputs by name: ['name', 'x']"),
        ({"inputs": {"y": 1}}, "expected inputs of ['name', 'x'], received 'y'"),
        ({"inputs": {"\ud800": 1}}, "expected inputs"),
        ({"instances": [{"x": 1}, {"x": 1, "name": "a"}]}, "instances[1]: expected ['x'] as in the first row"),
        ({"instances": [{"x": 1}, 1]}, "instances[1]: expected ['x'] as in the first row, received an integer"),
        ({"inputs": {"x": [1, [2]]}}, "in lists of one length"),
        ({"inputs": {"x": [[1], [2, 3]]}}, "in lists of one length"),
        ({"inputs": {"x": "1"}}, "expected float32 in lists of one length: received a string"),
        ({"inputs": {"x": [True]}}, "expected float32 in lists of one length: received a boolean"),
        ({"inputs": {"x": [None]}}, "expected float32 in lists of one length: received null"),
        ({"inputs": {"x": [{"b64": "AA=="}]}}, "expected float32 in lists of one length: received an object"),
        ({"inputs": {"x": [10**400]}}, "expected"),
        ({"inputs": {"x": DEEP}}, "in lists of one length"),
        ({"inputs": {"name": [1]}}, 'expected a string or {"b64": …}, received an integer'),
        ({"inputs": {"name": [{"b64": "?"}]}}, "expected string in lists of one length: "),
        ({"inputs": {"name": [{"b64": "AA==", "more": 1}]}}, "received an object"),
        ({"inputs": {"name": [["a"], ["b", "c"]]}}, "received a list"),
        ({"inputs": {"name": [["a"], "b"]}}, "expected string in lists of one length"),
        ({"inputs": {"name": ["a", ["b"]]}}, "expected string in lists of one length"),
        ({"inputs": {"name": ["\ud800"]}}, "surrogates not allowed"),
        ({"inputs": {"name": DEEP}}, "in lists of one length"),
    ],
)
def test_inputs_that_do_not_match_the_signature_are_rejected(request_: Any, word: str) -> None:
    assert word in get_rejection(json_codec.inputs, request_, signature(x=FLOAT, name=TEXT))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(tf.int8, 128), (tf.uint8, -1), (tf.int64, 2**63), (tf.uint64, 2**64), (tf.int32, 1.5), (tf.bool, 1)],
)
def test_numbers_outside_the_range_of_a_dtype_are_rejected(dtype: Any, value: float) -> None:
    assert f"expected {dtype.name}" in get_rejection(json_codec.to_array, "x", [value], TensorSpec(dtype, None))
