"""Convert the JSON of the REST API to NumPy arrays and back.

The format is the format of TensorFlow Serving, https://www.tensorflow.org/tfx/serving/api_rest. Bytes are written as
`{"b64": "…"}`, in requests and in outputs whose name ends with `_bytes`.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.data.saved_model import MISSING
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import MAX_REPEATED, Arrays, Signature, TensorSpec

_ACCEPTED: Mapping[str, set[type]] = {"i": {int}, "u": {int}, "f": {int, float}, "b": {bool}}
"""Kind of an input's dtype → Python types of the values that it accepts."""
_ROUNDING = 1 << 10
"""Integers at most this much below -2**63 become -2**63 when they are rounded to a double."""
_NOT_IN_JSON = frozenset({"float16", "bfloat16", "uint16"})
"""Dtypes that TensorFlow Serving neither reads from JSON nor writes to it."""
_JSON_TYPES = {
    str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object", type(None): "null"
}  # fmt: skip


def parse(body: bytes) -> dict[str, Any]:
    """Parse a body; raise RequestError unless it is a JSON object."""
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"expected a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"expected a JSON object, received {describe_type(type(value))}")
    return value


def inputs(request: Mapping[str, Any], signature: Signature, key: str = "") -> Arrays:
    """Convert the rows in `instances` or the columns in `inputs` to arrays.

    Args:
      request: JSON object of the request body.
      signature: Signature with the names, dtypes and shapes of the inputs.
      key: Name of an additional input of integers or strings that is accepted; "" for none.

    Returns:
      Input name → array.

    Raises:
      RequestError: If the values do not match the signature.
    """
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
                    received = sorted(row) if isinstance(row, dict) else describe_type(type(row))
                    expected = f"expected {sorted(names)} as in the first row"
                    raise RequestError(f"instances[{number}]: {expected}, received {received}")
            columns = {name: [row[name] for row in rows] for name in names}
    if not _is_named(columns):
        if len(signature.inputs) != 1:
            raise signature.error(f"expected its inputs by name: {sorted(signature.inputs)}")
        columns = dict.fromkeys(signature.inputs, columns)
    specs = dict(signature.inputs)
    if key and key in columns and key not in specs:
        values = columns[key]
        whole = isinstance(values, list) and all(type(value) is int for value in values)
        specs[key] = TensorSpec(tf.int64 if whole else tf.string, (-1,))
    if unknown := columns.keys() - specs.keys():
        raise signature.error(f"expected inputs of {sorted(specs)}, received {min(unknown)!r}")
    for name in columns:
        _check_dtype(f"input {name!r}", specs[name].dtype.name)
    return {
        name: to_array(name, values, specs[name], missing=signature.pads and name in signature.inputs)
        for name, values in columns.items()
    }


def column_names(request: Mapping[str, Any]) -> Collection[str]:
    """Return the names of the inputs in a request; nothing if the request does not name its inputs or is not valid."""
    rows = request.get("instances")
    columns: Any = rows[0] if isinstance(rows, list) and rows else request.get("inputs")
    return columns.keys() if _is_named(columns) else ()


def outputs(arrays: Arrays, by_row: bool) -> dict[str, Any]:
    """Convert outputs into the format of the request: by row for `instances`, by column for `inputs`.

    Raises:
      RequestError: If the format is by row, but the outputs differ in their number of rows; or if JSON does not have
        the dtype of an output.
    """
    for name, array in arrays.items():
        _check_dtype(f"output {name!r}", array.dtype.name)
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


def to_array(name: str, values: Any, spec: TensorSpec, *, missing: bool = False) -> npt.NDArray[Any]:
    """Convert nested lists to the dtype of an input.

    The integer -2**63 means a missing value. JavaScript writes it as the nearest double, -9223372036854776000, which is
    accepted as well.

    Args:
      name: Name of the input.
      values: Numbers, booleans, strings or lists of them.
      spec: Dtype and shape of the input. With the shape [rows, events], null may stand for a whole row.
      missing: Whether null means a missing value; otherwise null is rejected.

    Raises:
      RequestError: If the lists are ragged, or a value does not fit the dtype.
    """
    dtype = spec.dtype
    try:
        if missing and isinstance(values, list) and len(spec.shape or ()) == 2 and None in values:
            width = max((len(row) for row in values if isinstance(row, list)), default=1)
            # Padding could turn a body of a few megabytes into a terabyte.
            if len(values) * width > MAX_REPEATED:
                raise ValueError(f"received null together with a list of {width} values")
            values = [[None] * width if row is None else row for row in values]
        # NumPy keeps ragged lists, and lists nested deeper than its maximum rank, as elements. They are rejected below.
        array: npt.NDArray[Any] = np.array(values, object)
        flat = array.reshape(-1)
        # NumPy does not treat bfloat16 as a float.
        kind = "f" if dtype.is_floating else np.dtype(dtype.as_numpy_dtype).kind
        if missing and dtype in MISSING:
            flat[np.equal(flat, None)] = "" if dtype == tf.string else MISSING[dtype]
        if dtype == tf.string:
            flat[:] = [_to_bytes(text) for text in flat]
            return array
        # Convert the bounds to Python integers, because NumPy 2 would cast the value to the dtype of the bound.
        least, greatest = (0, 1) if dtype.is_bool or kind == "f" else map(int, (dtype.min, dtype.max))
        if dtype == tf.int64:
            flat[:] = [least if type(item) is int and least - _ROUNDING <= item < least else item for item in flat]
        for value in flat:
            if type(value) not in _ACCEPTED.get(kind, ()):
                raise TypeError(f"received {describe_type(type(value))}")
            if kind != "f" and not least <= value <= greatest:
                raise OverflowError("received a number out of its range")
        # A number beyond the range of a float becomes infinite, as in ingest and as JSON's 1e400. Models treat it as a
        # missing value.
        with np.errstate(over="ignore"):
            return array.astype(dtype.as_numpy_dtype)
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise RequestError(f"input {name!r}: expected {dtype.name} in lists of one length: {error}") from error


def _check_dtype(where: str, dtype: str) -> None:
    if dtype in _NOT_IN_JSON:
        raise RequestError(f"{where}: expected a dtype that TensorFlow Serving converts to JSON, received {dtype}")


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError(f'expected a string or {{"b64": …}}, received {describe_type(type(value))}')


def _to_lists(name: str, array: npt.NDArray[Any]) -> Any:
    if array.dtype == object:
        convert = _to_b64 if name.endswith("_bytes") else functools.partial(bytes.decode, errors="replace")
        array = np.vectorize(convert, otypes=[object])(array)
    return array.tolist()


def _to_b64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def describe_type(kind: type) -> str:
    """Return the name of JSON for a type of Python that json reads."""
    return _JSON_TYPES.get(kind, "a list")
