"""Tests and conversions of Arrow columns of any type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def is_list(type_: pa.DataType) -> bool:
    """Return whether the values of a type are lists: variable, large or of fixed size."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def is_nested(type_: pa.DataType) -> bool:
    """Return whether a tf.Example cannot represent values of a type: structs, maps, lists of lists."""
    if is_list(type_):
        return is_list(type_.value_type) or is_nested(type_.value_type)
    return bool(pa.types.is_nested(type_) or pa.types.is_map(type_))


def is_text(type_: pa.DataType) -> bool:
    """Return whether the values of a type are text or bytes of any length."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(type_) for test in tests)


def all_missing(column: pa.Array) -> bool:
    """Return whether all values of a column are missing."""
    return bool(column.null_count == len(column))


def decode_dictionary(column: pa.Array) -> pa.Array:
    """Replace the codes of a dictionary-encoded column by their values; return other columns unchanged."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def replace_values(column: pa.Array, values: pa.Array) -> pa.Array:
    """Return a column with the same list lengths but other values."""
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
    mask = np.append(np.asarray(column.is_null()), False) if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends, mask=mask), values)


def to_text(column: pa.Array) -> pa.Array:
    """Convert a column to UTF-8 text (binary): dates and times to ISO 8601, numbers to their shortest form."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_float16(column.type) or pa.types.is_decimal(column.type):
        column = to_float64(column)
    elif pa.types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column.cast(pa.string()).cast(pa.binary())


def to_float64(column: pa.Array) -> pa.Array:
    """Convert floats and decimals to float64."""
    if pa.types.is_float16(column.type):
        # Arrow cannot cast half precision.
        return pa.array(np.asarray(column, np.float64), mask=np.asarray(column.is_null()))
    return column.cast(pa.float64())


def to_int64(doubles: pa.Array) -> pa.Array | None:
    """Convert float64 to int64; return None if a value is not an integer."""
    try:
        return doubles.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def to_float32(values: pa.Array) -> pa.Array:
    """Convert float64 to float32, the float type of tf.Examples. Values beyond its range become infinite."""
    return values.cast(pa.float32())
