"""Convert the outputs of a model to columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from components.base.errors import InputError

_CLASSES, _PROBABILITIES = "classes", "probabilities"


def convert(outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, pa.Array]:
    """Convert the outputs of a model to columns.

    An output with one number or text per row becomes a column with the output's name; an output with several values per
    row becomes a list column. The outputs `classes` and `probabilities` of a classification become the column
    `prediction`, which contains the most probable class, and a column `probability_CLASS` per class.

    Args:
      outputs: Name → values; [rows, ...].

    Returns:
      Name → column, sorted by name.

    Raises:
      InputError: If an output is a scalar for the whole batch.
    """
    arrays = dict(outputs)
    converted: dict[str, pa.Array] = {}
    if arrays.keys() == {_CLASSES, _PROBABILITIES} and arrays[_CLASSES].shape == arrays[_PROBABILITIES].shape:
        probabilities, classes = arrays.pop(_PROBABILITIES), arrays.pop(_CLASSES)
        # All rows contain the same classes in the same order.
        names = _decode_text(classes[0])
        converted["prediction"] = names.take(pa.array(probabilities.argmax(axis=1)))
        converted |= {f"probability_{name}": pa.array(probabilities[:, index]) for index, name in enumerate(names)}
    for name, values in arrays.items():
        if not values.ndim:
            raise InputError(
                f"output {name}: expected one value per row, received one value for the whole batch",
                "name another signature",
            )
        flat = values.reshape([len(values), -1])
        width = flat.shape[1]
        items = _decode_text(flat.ravel()) if values.dtype == object else pa.array(flat.ravel())
        converted[name] = items if width == 1 else pa.FixedSizeListArray.from_arrays(items, width)
    return dict(sorted(converted.items()))


def _decode_text(values: npt.NDArray[Any]) -> pa.Array:
    """Decode UTF-8. If a value is not valid UTF-8, its invalid bytes are written as escape sequences."""
    column = pa.array(values, pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="backslashreplace") for value in values])
