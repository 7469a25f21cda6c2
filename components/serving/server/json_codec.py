"""Requests and answers of the REST API: JSON to NumPy arrays and back.

The format is TensorFlow Serving's, https://www.tensorflow.org/tfx/serving/api_rest: bytes are `{"b64": "…"}`, also in
outputs whose name ends with `_bytes`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow_serving.apis.input_pb2 import Input

from components.serving.server.errors import RequestError
from components.serving.server.saved_model import Arrays, Signature, TensorSpec

_ACCEPTED = {"i": "iu", "u": "iu", "f": "iuf", "b": "b"}
"""Kind of an input's dtype → kinds of numbers that it accepts."""
_JSON_TYPES = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object"}


def parse(body: bytes) -> dict[str, Any]:
    """Parse a body; raise RequestError unless it is a JSON object."""
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"expected a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"expected a JSON object, received {_json_type(value)}")
    return value


def inputs(request: Mapping[str, Any], signature: Signature) -> Arrays:
    """Convert `instances`, a list of rows, or `inputs`, columns; raise RequestError unless they match the signature."""
    if ("instances" in request) == ("inputs" in request):
        raise RequestError("expected either instances (a list of rows) or inputs (columns)")
    columns: Any = request.get("inputs")
    if "instances" in request:
        columns = rows = request["instances"]
        if not isinstance(rows, list) or not rows:
            raise RequestError("instances: expected a list of at least one row")
        if _is_named(rows[0]):
            names = rows[0].keys()
            for number, row in enumerate(rows):
                if not isinstance(row, dict) or row.keys() != names:
                    received = sorted(row) if isinstance(row, dict) else _json_type(row)
                    expected = f"expected {sorted(names)} as in the first row"
                    raise RequestError(f"instances[{number}]: {expected}, received {received}")
            columns = {name: [row[name] for row in rows] for name in names}
    if not _is_named(columns):
        if len(signature.inputs) != 1:
            names = sorted(signature.inputs)
            raise RequestError(f"signature {signature.name!r}: expected its inputs by name: {names}")
        columns = dict.fromkeys(signature.inputs, columns)
    if unknown := columns.keys() - signature.inputs.keys():
        names = sorted(signature.inputs)
        raise RequestError(f"signature {signature.name!r}: expected inputs of {names}, received {min(unknown)!r}")
    return {name: to_array(name, values, signature.inputs[name]) for name, values in columns.items()}


def outputs(arrays: Arrays, by_row: bool) -> dict[str, Any]:
    """Convert outputs into the format of the request, by row (`instances`) or by column (`inputs`).

    Raises:
      RequestError: by row, but the outputs differ in their number of rows.
    """
    values = {name: _to_lists(name, array) for name, array in arrays.items()}
    key = "predictions" if by_row else "outputs"
    if len(values) == 1:
        return {key: next(iter(values.values()))}
    if not by_row:
        return {key: values}
    rows = {array.shape[:1] for array in arrays.values()}
    if len(rows) > 1 or () in rows:
        raise RequestError("instances: the outputs differ in their number of rows; send columns (inputs)")
    return {key: [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]}


def examples(request: Mapping[str, Any]) -> Input:
    """Convert the examples of a classify or regress request; raise RequestError if they are not valid."""
    rows, context = request.get("examples"), request.get("context", {})
    if not isinstance(rows, list) or not rows or not isinstance(context, dict):
        raise RequestError("expected examples: a list of objects from feature name to value or values")
    result = Input()
    examples = result.example_list_with_context
    for number, row in enumerate([context, *rows], -1):
        if not isinstance(row, dict):
            raise RequestError(f"examples[{number}]: expected an object, received {_json_type(row)}")
        features = (examples.context if number < 0 else examples.examples.add()).features.feature
        for name, values in row.items():
            try:
                _set_feature(features, name, values if isinstance(values, list) else [values])
            except (OverflowError, TypeError, ValueError) as error:
                raise RequestError(f"feature {name!r}: {error}") from error
    return result


def _set_feature(features: Any, name: str, values: list[Any]) -> None:
    types, feature = {type(value) for value in values}, features[name]
    if types == {int}:
        feature.int64_list.value.extend(values)
    elif types and types <= {int, float}:
        feature.float_list.value.extend(values)
    elif types:
        feature.bytes_list.value.extend(map(_to_bytes, values))


def to_array(name: str, values: Any, spec: TensorSpec) -> npt.NDArray[Any]:
    """Convert nested lists to the dtype of an input; raise RequestError if they are ragged, or a value does not fit."""
    dtype = spec.numpy
    try:
        if dtype.kind == "O":
            return _strings(values)
        array = np.array(values, object if dtype == np.uint64 else None)
        if dtype == np.uint64:
            # NumPy would make floats of integers of which some exceed int64.
            array = (
                array.astype(dtype) if all(type(each) is int and each >= 0 for each in array.flat) else np.array(values)
            )
    except (ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"input {name!r}: expected {spec.dtype.name} in lists of one length: {error}") from error
    # NumPy does not count bfloat16 as a float.
    if array.size and array.dtype.kind not in _ACCEPTED.get("f" if spec.dtype.is_floating else dtype.kind, ""):
        raise RequestError(
            f"input {name!r}: expected {dtype.name}, received {_json_type(np.array(values, object).flat[0])}"
        )
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if not np.array_equal(*((cast, array) if dtype.kind in "iu" else (np.isinf(cast), np.isinf(array)))):
        raise RequestError(f"input {name!r}: expected {dtype.name}, received a number out of its range")
    return cast


def _strings(values: Any) -> npt.NDArray[Any]:
    # NumPy keeps ragged lists, and lists below its maximum rank, as elements; _to_bytes rejects them.
    array = np.array(values, object)
    flat = array.reshape(-1)
    flat[:] = [_to_bytes(each) for each in flat]
    return array


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError(f'expected a string or {{"b64": …}}, received {_json_type(value)}')


def _to_lists(name: str, array: npt.NDArray[Any]) -> Any:
    if array.dtype == object:
        as_bytes = name.endswith("_bytes")
        result = np.empty(array.size, object)
        result[:] = [
            {"b64": base64.b64encode(each).decode()} if as_bytes else each.decode(errors="replace")
            for each in array.ravel().tolist()
        ]
        array = result.reshape(array.shape)
    return array.tolist()


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _json_type(value: Any) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), "a list")
