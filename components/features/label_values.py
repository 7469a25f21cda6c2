"""The label of rows in memory, as in the transform graph (`label`), computed with NumPy and without TensorFlow."""

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
"""Numbers, NaN where missing, or texts as bytes, None where missing."""
_Operand: TypeAlias = _Values | float | bytes


def labels(parsed: Expression, task: Task, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.float64]:
    """Compute the labels of rows.

    Args:
      parsed: The label.
      task: The task.
      columns: Name → the raw values of a column of the label: int, float or binary, null where missing; [rows].

    Returns:
      float64, [rows]. binary: 0 or 1. multiclass: a number for each class; these numbers are other ones than the
      model's. regression: the number as float32. NaN where the class or the number is missing.

    Raises:
      TypeError: The expression does not fit the types of the columns.
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
    """Evaluate a label: float64, or bool for a comparison; [rows].

    Args:
      parsed: The label.
      columns: Name → int, float or binary, null where missing; [rows]. A float that is not finite is missing.

    Raises:
      TypeError: The expression does not fit the types of the columns.
    """
    with np.errstate(all="ignore"):
        return np.asarray(parsed.evaluate({name: _operand(columns[name]) for name in parsed.columns}, _Arithmetic()))


def _classes(column: pa.Array) -> pa.Array:
    """Return the classes, null where missing: a null, an empty text, or a float that is not finite."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_finite(column), column, None)
    if pa.types.is_integer(column.type):
        return column
    return pc.if_else(pc.equal(pc.binary_length(column), 0), None, column)


def _operand(column: pa.Array) -> _Values:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts: npt.NDArray[np.object_] = column.to_numpy(zero_copy_only=False)
        return texts
    # Integers above 2**53 are rounded, as in the transform graph.
    numbers = np.asarray(decimal_numbers(column).cast(pa.float64(), safe=False).fill_null(float("nan")), np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


class _Arithmetic:
    """The operations of a label expression on NumPy arrays; a comparison with a missing value is false."""

    def constant(self, value: float | str) -> float | bytes:
        """Return a number or a text of the expression."""
        return value.encode() if isinstance(value, str) else value

    def not_equal(self, left: _Operand, right: _Operand) -> npt.NDArray[np.bool_] | bool:
        """Return where both are present and differ."""
        return np.not_equal(left, right) & _present(left) & _present(right)

    def __getattr__(self, name: str) -> Callable[..., _Values]:
        """Return NumPy's operation of that name."""
        operation: Callable[..., _Values] = getattr(np, name)
        return operation


def _present(value: _Operand) -> npt.NDArray[np.bool_] | bool:
    if isinstance(value, np.ndarray):
        return np.not_equal(value, None).astype(bool) if value.dtype == object else ~np.isnan(value)
    return True
