"""Compute the label of rows in memory with NumPy, with the same result as the transform graph (`label`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.base.config_section import Task
from components.data.decimals import decimal_numbers
from components.features.expression import Expression

_Values: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.object_]
"""Numbers, where NaN is a missing value, or texts as bytes, where None is a missing value."""
_Operand: TypeAlias = _Values | float | bytes


def labels(parsed: Expression, task: Task, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.float64]:
    """Compute the labels of rows.

    Args:
      parsed: Expression of the label.
      task: Kind of prediction.
      columns: Column name → raw values: int, float or binary, null where missing; shape [rows].

    Returns:
      The labels, float64 of shape [rows]: 0 or 1 for binary, the index of the class for multiclass, where the indices
      differ from the model's indices, and the number rounded to float32 for regression. A missing class or number is
      NaN.

    Raises:
      TypeError: If the expression does not fit the types of the columns.
    """
    if task == "multiclass":
        codes = _classes(columns[parsed.columns[0]]).dictionary_encode().indices
        return np.asarray(codes.cast(pa.float64()).fill_null(float("nan")), np.float64)
    values = evaluate(parsed, columns)
    if task == "regression":
        return values.astype(np.float32).astype(np.float64)
    positive = b"1" if values.dtype == object else 1
    return (values if values.dtype == bool else values == positive).astype(np.float64)


def evaluate(parsed: Expression, columns: Mapping[str, pa.Array]) -> npt.NDArray[Any]:
    """Evaluate the expression of a label.

    Args:
      parsed: Expression of the label.
      columns: Column name → int, float or binary values, null where missing; shape [rows]. Floats that are not finite
        count as missing.

    Returns:
      The values, float64, or bool if the expression is a comparison; shape [rows].

    Raises:
      TypeError: If the expression does not fit the types of the columns.
    """
    with np.errstate(all="ignore"):
        return np.asarray(parsed.evaluate({name: _operand(columns[name]) for name in parsed.columns}, _Arithmetic()))


def _classes(column: pa.Array) -> pa.Array:
    """Return the classes. Empty texts and floats that are not finite become null."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_finite(column), column, None)
    if pa.types.is_integer(column.type):
        return column
    return pc.if_else(pc.equal(pc.binary_length(column), 0), None, column)


def _operand(column: pa.Array) -> _Values:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts: npt.NDArray[np.object_] = column.to_numpy(zero_copy_only=False)
        return texts
    # The conversion rounds integers above 2**53, as the transform graph does.
    numbers = np.asarray(decimal_numbers(column).cast(pa.float64(), safe=False).fill_null(float("nan")), np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


class _Arithmetic:
    """The operations of a label expression on NumPy arrays. A comparison with a missing value is false."""

    def constant(self, value: float | str) -> float | bytes:
        """Convert a number or a text of the expression."""
        return value.encode() if isinstance(value, str) else value

    def not_equal(self, left: _Operand, right: _Operand) -> npt.NDArray[np.bool_] | bool:
        """Return whether two values differ and neither is missing."""
        return np.not_equal(left, right) & _is_present(left) & _is_present(right)

    def __getattr__(self, name: str) -> Callable[..., _Values]:
        """Return NumPy's function with this name."""
        operation: Callable[..., _Values] = getattr(np, name)
        return operation


def _is_present(value: _Operand) -> npt.NDArray[np.bool_] | bool:
    if isinstance(value, np.ndarray):
        return np.not_equal(value, None).astype(bool) if value.dtype == object else ~np.isnan(value)
    return True
