"""Tensors as the REST API sends them, to numpy and back.

The format is TensorFlow Serving's: https://www.tensorflow.org/tfx/serving/api_rest. Bytes are `{"b64": "…"}`; an output
whose name ends with `_bytes` is sent so, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.serving.server.refusal import invalid
from components.serving.server.servable import Arrays, Signature, Tensor

_KINDS = {"i": "iu", "u": "iu", "f": "iuf", "b": "b"}
"""Kind of a dtype → kinds of numbers that it takes without loss of meaning."""


def parse(body: bytes | bytearray) -> dict[str, Any]:
    """The JSON object that a request is.

    Raises:
      RequestError: it is none.
    """
    try:
        told = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise invalid(f"expected a JSON object: {error}") from error
    if not isinstance(told, dict):
        raise invalid(f"expected a JSON object, received a JSON {type(told).__name__}")
    return told


def inputs(told: Mapping[str, Any], signature: Signature) -> Arrays:
    """The inputs of a request to predict: `instances`, row by row, or `inputs`, column by column.

    Raises:
      RequestError: they do not fit the signature.
    """
    if ("instances" in told) == ("inputs" in told):
        raise invalid("expected either instances (a list of rows) or inputs (columns)")
    if "inputs" in told:
        columns = told["inputs"]
        if not _is_named(columns):
            columns = {_only(signature): columns}
        return {name: array(name, values, _tensor(signature, name)) for name, values in columns.items()}
    rows = told["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid("instances: expected a list of at least one row")
    if not _is_named(rows[0]):
        name = _only(signature)
        return {name: array(name, rows, _tensor(signature, name))}
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != names:
            received = sorted(row) if isinstance(row, dict) else type(row).__name__
            raise invalid(f"instances[{number}]: expected {sorted(names)} as in the first row, received {received}")
    return {name: array(name, [row[name] for row in rows], _tensor(signature, name)) for name in names}


def outputs(answers: Arrays, by_row: bool) -> dict[str, Any]:
    """The body of an answer, in the format of its request.

    Args:
      answers: output → array.
      by_row: whether the request had instances.
    """
    if by_row and len(answers) > 1:
        rows = {answer.shape[:1] for answer in answers.values()}
        if len(rows) > 1 or () in rows:
            raise invalid("instances: the outputs differ in their number of rows; ask by columns (inputs)")
    values = {name: _plain(name, answer) for name, answer in answers.items()}
    only = next(iter(values.values())) if len(values) == 1 else None
    if not by_row:
        return {"outputs": values if only is None else only}
    if only is not None:
        return {"predictions": only}
    return {"predictions": [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]}


def examples(told: Mapping[str, Any]) -> Any:
    """The tf.Examples of a request to classify or to regress, serialized, shape [batch].

    Raises:
      RequestError: they are none.
    """
    given, shared = told.get("examples"), told.get("context", {})
    if not isinstance(given, list) or not given or not isinstance(shared, dict):
        raise invalid("expected examples: a list of objects from a feature to its value or values")
    found = np.empty(len(given), object)
    for number, each in enumerate(given):
        if not isinstance(each, dict):
            raise invalid(f"examples[{number}]: expected an object, received {_kind(each)}")
        example = tf.train.Example()
        for name, values in {**shared, **each}.items():
            _put(example.features.feature, name, values if isinstance(values, list) else [values])
        found[number] = example.SerializeToString()
    return found


def _put(features: Any, name: str, values: list[Any]) -> None:
    kinds = {type(value) for value in values}
    try:
        feature = features[name]
        if not kinds:
            # Of no kind, as long as it holds nothing.
            return
        if kinds == {int}:
            feature.int64_list.value.extend(values)
        elif kinds <= {int, float}:
            feature.float_list.value.extend(values)
        else:
            feature.bytes_list.value.extend(_decoded(name, value) for value in values)
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise invalid(f"feature {name!r}: {error}") from error


def array(name: str, values: Any, tensor: Tensor) -> Any:
    """Nested lists as an array of the dtype that is wanted.

    Raises:
      RequestError: they are ragged, or of another kind.
    """
    wanted = tensor.numpy
    try:
        if wanted.kind == "O":
            return _texts(name, values)
        found = _numbers(values, wanted)
    except (ValueError, OverflowError, RecursionError) as error:
        raise invalid(f"input {name!r}: expected lists of one length: {error}") from error
    # To numpy, bfloat16 is no float.
    if found.size and found.dtype.kind not in _KINDS.get("f" if tensor.dtype.is_floating else wanted.kind, ""):
        raise invalid(f"input {name!r}: expected {wanted.name}, received {_kind(values)}")
    with np.errstate(over="ignore"):
        cast = found.astype(wanted)
    fits = np.array_equal(cast, found) if wanted.kind in "iu" else np.array_equal(np.isinf(cast), np.isinf(found))
    if not fits:
        raise invalid(f"input {name!r}: expected {wanted.name}, received a number that does not fit into it")
    return cast


def _numbers(values: Any, wanted: Any) -> Any:
    found = np.array(values)
    if wanted == np.uint64 and found.dtype.kind == "f":
        # So numpy takes integers of which some are too great for int64 and others are not.
        exact = np.array(values, object)
        if all(type(each) is int and each >= 0 for each in exact.flat):
            return exact.astype(wanted)
    return found


def _texts(name: str, values: Any) -> Any:
    if isinstance(values, list) and not any(isinstance(value, list) for value in values):
        # As nearly every request is.
        flat = np.empty(len(values), object)
        flat[:] = [_decoded(name, value) for value in values]
        return flat
    decoded = _decoded(name, values)
    shape = _shape(decoded)
    found = np.empty(shape, object)
    flat = found.reshape(-1)
    position = -1
    for position, text in enumerate(_leaves(decoded, len(shape))):
        if position < flat.size:
            flat[position] = text
    if position + 1 != flat.size:
        raise ValueError("they differ in length")
    return found


def _decoded(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise invalid(f"input {name!r}: expected base64 in b64: {error}") from error
    if isinstance(value, list):
        return [_decoded(name, each) for each in value]
    raise invalid(f'input {name!r}: expected a string or {{"b64": …}}, received {_kind(value)}')


def _shape(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _leaves(value: Any, depth: int) -> Any:
    if depth == 0:
        if isinstance(value, list):
            raise ValueError("some are nested deeper than others")
        yield value
    elif not isinstance(value, list):
        raise ValueError("some are nested deeper than others")
    else:
        for each in value:
            yield from _leaves(each, depth - 1)


def _plain(name: str, answer: Any) -> Any:
    if answer.dtype != object:
        return answer.tolist()
    as_bytes = name.endswith("_bytes")
    flat = [
        {"b64": base64.b64encode(text).decode()} if as_bytes else text.decode(errors="replace")
        for text in answer.ravel().tolist()
    ]
    nested = np.empty(len(flat), object)
    nested[:] = flat
    return nested.reshape(answer.shape).tolist()


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _only(signature: Signature) -> str:
    if len(signature.inputs) != 1:
        raise invalid(f"signature {signature.name!r}: expected its inputs by name: {sorted(signature.inputs)}")
    return next(iter(signature.inputs))


def _tensor(signature: Signature, name: str) -> Tensor:
    found = signature.inputs.get(name)
    if found is None:
        raise invalid(f"signature {signature.name!r}: it has no input {name!r}; known are {sorted(signature.inputs)}")
    return found


def _kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    while isinstance(value, Sequence) and not isinstance(value, str) and value:
        value = value[0]
    kinds = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), "a list")
