"""JSON bodies become the arrays they say, and answers become the JSON that says them; what fits nothing is refused."""

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

from components.serving.server import json_tensors
from components.serving.server.refusal import RequestError
from components.serving.server.servable import Signature, Tensor

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64]
DTYPES += [np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, max_side=4)
FLOAT, INT, TEXT = (Tensor(dtype, None) for dtype in (tf.float32, tf.int64, tf.string))


def signature(**tensors: Tensor) -> Signature:
    return Signature("s", "tensorflow/serving/predict", tensors, {}, None)


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    assert caught.value.http == 400
    return str(caught.value)


def plain(value: Any) -> Any:
    """Texts of an array as they go into a request."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


@settings(deadline=None)
@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_numbers_arrive_as_they_were(array: Any) -> None:
    body = json.dumps({"inputs": {"x": array.tolist()}}).encode()
    told = json_tensors.inputs(json_tensors.parse(body), signature(x=Tensor(tf.dtypes.as_dtype(array.dtype), None)))
    assert told["x"].dtype == array.dtype
    np.testing.assert_array_equal(told["x"], array)
    answer = json.loads(json.dumps(json_tensors.outputs({"x": array}, by_row=False)))
    np.testing.assert_array_equal(np.array(answer["outputs"], array.dtype), array)


@settings(deadline=None)
@given(arrays.arrays(object, SHAPES, elements=st.binary(max_size=9)))
def test_bytes_arrive_as_they_were(array: Any) -> None:
    body = json.dumps({"inputs": {"x": plain(array.tolist())}}).encode()
    told = json_tensors.inputs(json_tensors.parse(body), signature(x=TEXT))["x"]
    assert (told.dtype, told.shape, told.tolist()) == (array.dtype, array.shape, array.tolist())
    answer = json.loads(json.dumps(json_tensors.outputs({"x_bytes": array}, by_row=False)))
    assert answer["outputs"] == plain(array.tolist())


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_are_utf_8(texts: list[str]) -> None:
    told = json_tensors.inputs({"instances": texts}, signature(x=TEXT))["x"]
    assert told.tolist() == [text.encode() for text in texts]
    assert json_tensors.outputs({"x": told}, by_row=True) == {"predictions": texts}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"instances": [1, 2]}, {"x": [1, 2]}),
        ({"instances": [{"x": 1}, {"x": 2}]}, {"x": [1, 2]}),
        ({"inputs": [1, 2]}, {"x": [1, 2]}),
        ({"inputs": {"x": [1, 2]}}, {"x": [1, 2]}),
        ({"inputs": {}}, {}),
        ({"instances": [1e-3, float("inf"), -1]}, {"x": [np.float32(1e-3), float("inf"), -1]}),
    ],
)
def test_rows_and_columns(told: Any, expected: dict[str, list[float]]) -> None:
    found = json_tensors.inputs(told, signature(x=FLOAT))
    assert {name: value.tolist() for name, value in found.items()} == expected


def test_rows_of_several_inputs() -> None:
    told = {"instances": [{"x": 1, "name": "a"}, {"name": {"b64": "/w=="}, "x": 2.5}]}
    found = json_tensors.inputs(told, signature(x=FLOAT, name=TEXT))
    assert (found["x"].tolist(), found["name"].tolist()) == ([1, 2.5], [b"a", b"\xff"])


def test_half_precision_of_both_kinds() -> None:
    for dtype in (tf.float16, tf.bfloat16):
        found = json_tensors.array("x", [1.5, 2, float("-inf")], Tensor(dtype, None))
        assert found.dtype == dtype.as_numpy_dtype
        assert json_tensors.outputs({"x": found}, by_row=False) == {"outputs": [1.5, 2, float("-inf")]}


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
def test_answers_have_the_form_of_their_requests(answers: Any, by_row: bool, expected: Any) -> None:
    assert json_tensors.outputs({name: np.array(value) for name, value in answers.items()}, by_row) == expected


@pytest.mark.parametrize("other", [1.5, [1, 2, 3]])
def test_outputs_of_other_rows_are_not_told_row_by_row(other: Any) -> None:
    answers = {"y": np.array([1.5, 2.5]), "z": np.array(other)}
    assert "ask by columns" in refused(json_tensors.outputs, answers, True)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "expected a JSON object: Expecting value"),
        (b"{", "expected a JSON object"),
        (b"\xff\xfe{}", "expected a JSON object"),
        (b"[1]", "received a JSON list"),
        (b"null", "received a JSON NoneType"),
        (b"[" * 100_000, "recursion"),
        (b'{"instances":' + b"[" * 100_000, "recursion"),
    ],
)
def test_no_json_object(body: bytes, word: str) -> None:
    assert word in refused(json_tensors.parse, body)


DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({}, "either instances"),
        ({"instances": [1], "inputs": [1]}, "either instances"),
        ({"instances": []}, "at least one row"),
        ({"instances": {"x": 1}}, "at least one row"),
        ({"instances": [1]}, "its inputs by name: ['name', 'x']"),
        ({"inputs": 1}, "its inputs by name: ['name', 'x']"),
        ({"inputs": {"y": 1}}, "no input 'y'; known are ['name', 'x']"),
        ({"inputs": {"\ud800": 1}}, "no input"),
        ({"instances": [{"x": 1}, {"x": 1, "name": "a"}]}, "instances[1]: expected ['x'] as in the first row"),
        ({"instances": [{"x": 1}, 1]}, "instances[1]: expected ['x'] as in the first row, received int"),
        ({"inputs": {"x": [1, [2]]}}, "expected lists of one length"),
        ({"inputs": {"x": [[1], [2, 3]]}}, "expected lists of one length"),
        ({"inputs": {"x": "1"}}, "expected float32, received a string"),
        ({"inputs": {"x": [True]}}, "expected float32, received a boolean"),
        ({"inputs": {"x": [None]}}, "expected float32, received null"),
        ({"inputs": {"x": [{"b64": "AA=="}]}}, "expected float32, received an object"),
        ({"inputs": {"x": [1e39]}}, "a number that does not fit"),
        ({"inputs": {"x": [10**400]}}, "expected"),
        ({"inputs": {"x": DEEP}}, "expected lists of one length"),
        ({"inputs": {"name": [1]}}, 'expected a string or {"b64": …}, received an integer'),
        ({"inputs": {"name": [{"b64": "?"}]}}, "expected base64"),
        ({"inputs": {"name": [{"b64": "AA==", "more": 1}]}}, "received an object"),
        ({"inputs": {"name": [["a"], ["b", "c"]]}}, "they differ in length"),
        ({"inputs": {"name": [["a"], "b"]}}, "nested deeper"),
        ({"inputs": {"name": ["a", ["b"]]}}, "nested deeper"),
        ({"inputs": {"name": ["\ud800"]}}, "surrogates not allowed"),
        ({"inputs": {"name": DEEP}}, "expected lists of one length"),
    ],
)
def test_inputs_that_fit_no_signature(told: Any, word: str) -> None:
    assert word in refused(json_tensors.inputs, told, signature(x=FLOAT, name=TEXT))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(tf.int8, 128), (tf.uint8, -1), (tf.int64, 2**63), (tf.uint64, 2**64), (tf.int32, 1.5), (tf.bool, 1)],
)
def test_numbers_that_fit_no_dtype(dtype: Any, value: float) -> None:
    assert f"expected {dtype.name}" in refused(json_tensors.array, "x", [value], Tensor(dtype, None))


def test_examples_to_classify() -> None:
    told = {
        "context": {"shared": "all", "x": 0},
        "examples": [{"x": [1, 2]}, {"x": 1.5, "text": ["a", {"b64": "/w=="}], "none": []}],
    }
    first, second = (tf.train.Example.FromString(each).features.feature for each in json_tensors.examples(told))
    assert (first["x"].int64_list.value, first["shared"].bytes_list.value) == ([1, 2], [b"all"])
    assert (second["x"].float_list.value, second["text"].bytes_list.value) == ([1.5], [b"a", b"\xff"])
    assert second["none"].WhichOneof("kind") is None


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({}, "expected examples"),
        ({"examples": []}, "expected examples"),
        ({"examples": {}}, "expected examples"),
        ({"examples": [1]}, "examples[0]: expected an object, received an integer"),
        ({"examples": [{}], "context": 1}, "expected examples"),
        ({"examples": [{"x": None}]}, "received null"),
        ({"examples": [{"x": True}]}, "received a boolean"),
        ({"examples": [{"x": 2**63}]}, "feature 'x'"),
        ({"examples": [{"x": [1.5, 10**400]}]}, "feature 'x'"),
        ({"examples": [{"x": [["a"], ["b"]]}]}, "feature 'x'"),
        ({"examples": [{"x": DEEP}]}, "feature 'x'"),
        ({"examples": [{"x": "\ud800"}]}, "surrogates not allowed"),
        ({"examples": [{"\ud800": 1}]}, "surrogates not allowed"),
    ],
)
def test_no_examples(told: Any, word: str) -> None:
    assert word in refused(json_tensors.examples, told)
