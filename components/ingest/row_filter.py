"""Select the rows that fulfil `data.where`. As in SQL, a comparison with a missing value is neither true nor false."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.decimals import decimal_numbers
from components.data.missing import nan_to_null
from components.features.expression import parse_condition
from components.ingest.column_types import quote
from components.ingest.number_texts import parse_number, with_point
from components.ingest.split_assignment import as_text, single_values

BadValues: TypeAlias = dict[int, tuple[str, str]]
"""Index of a row → name of the column with a bad value, and what was expected and received."""
_WORDS = {b"true": 1.0, b"false": 0.0}


class RowFilter:
    """Selects rows by a condition on their columns, before types are inferred and rows are assigned to splits.

    Args:
      condition: Text of the condition; see `parse_condition`.
      decimal: Decimal sign of numbers in text, a point or a comma.
    """

    def __init__(self, condition: str, decimal: str = ".") -> None:
        self._expression, self._texts = parse_condition(condition)
        self._decimal = decimal

    def select(self, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], BadValues]:
        """Return whether each row fulfils the condition, bool of shape [rows], and the rows that cannot be judged.

        Args:
          rows: Columns as they were read: text (binary), or typed columns. A column that the rows lack is missing.
        """
        bad: BadValues = {}
        columns = {name: self._operand(rows, name, bad) for name in self._expression.columns}
        result = _to_condition(self._expression.evaluate(columns, _Arithmetic()))
        return np.asarray(result.fill_null(False)), bad

    def _operand(self, rows: pa.RecordBatch, name: str, bad: BadValues) -> pa.Array:
        index = rows.schema.get_field_index(name)
        is_text = name in self._texts
        if index < 0:
            return pa.nulls(rows.num_rows, pa.binary() if is_text else pa.float64())
        column = rows.column(index)
        column = single_values(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
        if is_text:
            return as_text(column)
        values, invalid = read_numbers(column, self._decimal)
        for row in np.flatnonzero(invalid).tolist():
            reason = f"expected a number, which data.where needs, received {quote(as_text(column)[row].as_py())}"
            bad.setdefault(row, (name, reason))
        return values


def read_numbers(column: pa.Array, decimal: str = ".") -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the numbers of a column, int64 or float64 without NaN, and whether each text is no number, bool [rows].

    Args:
      column: Numbers or texts, as they were read; a list counts if it has one value.
      decimal: Decimal sign of numbers in text, a point or a comma.
    """
    column = single_values(column)
    if pa.types.is_null(column.type):
        return column.cast(pa.float64()), np.zeros(len(column), bool)
    if _is_number(column.type):
        return _to_number(column), np.zeros(len(column), bool)
    texts = as_text(column)
    return _parse_numbers(with_point(texts) if decimal == "," else texts)


def _is_number(type_: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(type_) for test in tests)


def _to_number(column: pa.Array) -> pa.Array:
    """Convert a typed column to int64, which is exact, or to float64 without NaN."""
    if pa.types.is_boolean(column.type) or (pa.types.is_integer(column.type) and column.type != pa.uint64()):
        return column.cast(pa.int64())
    return nan_to_null(_to_float(decimal_numbers(column)))


def _parse_numbers(texts: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Parse text (binary) as int64 or float64; also return whether each text is no number, bool of shape [rows]."""
    for type_ in (pa.int64(), pa.float64()):
        try:
            return nan_to_null(texts.cast(type_)), np.zeros(len(texts), bool)
        except pa.ArrowInvalid:
            continue
    coded = texts.dictionary_encode()
    numbers = [_parse_number(text) for text in coded.dictionary.to_pylist()]
    values = pa.array(numbers, pa.float64()).take(coded.indices)
    return nan_to_null(values), np.asarray(values.is_null()) & np.asarray(texts.is_valid())


def _parse_number(text: bytes) -> float | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return parse_number(text)
    except ValueError:
        return None


def _to_float(value: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    if isinstance(value, pa.Scalar):
        return pa.scalar(float(value.as_py()))
    return pc.cast(value, pa.float64(), safe=False)


class _Arithmetic:
    """The operations of a condition on columns of Arrow. The result for a missing value is missing."""

    def constant(self, value: float | str) -> pa.Scalar:
        """Convert a number or a string of the condition."""
        return pa.scalar(value.encode() if isinstance(value, str) else value)

    def logical_not(self, value: pa.Array) -> pa.Array:
        """Negate a condition."""
        return pc.invert(_to_condition(value))

    def logical_and(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Return whether both conditions are true; false if one of them is false and the other is missing."""
        return pc.and_kleene(_to_condition(left), _to_condition(right))

    def logical_or(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Return whether one of two conditions is true, even if the other is missing."""
        return pc.or_kleene(_to_condition(left), _to_condition(right))

    def divide(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Divide two numbers; the result is missing if the second is 0."""
        quotient = pc.divide(_to_float(left), _to_float(right))
        return pc.if_else(pc.is_finite(quotient), quotient, None)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return Arrow's function with this name, whose operands get a common type: exact integers, floats or texts."""
        function = getattr(pc, {"negative": "negate"}.get(name, name))
        is_arithmetic = name in ("add", "subtract", "multiply", "negative")

        def apply(*operands: pa.Array | pa.Scalar) -> pa.Array:
            exact = all(pa.types.is_integer(operand.type) or not _is_number(operand.type) for operand in operands)
            return function(*(operands if exact and not is_arithmetic else map(_to_float, operands)))

        return apply


def _to_condition(value: pa.Array) -> pa.Array:
    """Return a condition; a column of numbers is true where it is not 0."""
    return value if pa.types.is_boolean(value.type) else pc.not_equal(value, 0)
