"""The rule for missing numbers: NaN and infinity are missing values, and -0.0 is 0.0.

A number beyond the range of float32 becomes infinite when it is stored, so it is missing as well. The transform graph
applies the same rule to requests.

Arrow and NumPy treat NaN and the two zeros inconsistently: a dictionary of values, a hash or the text of a number
distinguishes them, but a comparison does not. Therefore every value is normalized where it enters the pipeline.
"""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.arrow_columns import is_list


def nan_to_null(column: pa.Array) -> pa.Array:
    """Replace NaN and infinity by null, and -0.0 by 0.0.

    Args:
      column: Column of any type. NaN and infinity in lists become null as well. A list whose only value is NaN or
        infinity becomes null itself, because a tf.Example stores a single value as a list.

    Returns:
      The same object if nothing changes, so that callers can detect this. Otherwise an array of the same type, where
      lists of fixed size become lists of variable size.
    """
    if column.null_count == len(column):
        return column
    if is_list(column.type):
        return _lists(column)
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.to_numpy(zero_copy_only=False)
    missing = ~np.isfinite(numbers)
    if np.count_nonzero(missing) == column.null_count and not (np.signbit(numbers) & (numbers == 0)).any():
        return column
    # The sum of -0.0 and 0.0 is 0.0.
    return pa.array(numbers + numbers.dtype.type(0), column.type, mask=missing)


def without_nan(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Apply `nan_to_null` to all columns; return the same object if nothing changes."""
    # Read `columns` once, because every access creates new objects.
    before = batch.columns
    columns = [nan_to_null(column) for column in before]
    if all(map(operator.is_, columns, before)):
        return batch
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def drop_nan(column: pa.Array) -> pa.Array:
    """Remove NaN from the lists of a column, and replace -0.0 by 0.0."""
    if pa.types.is_null(column.type):
        return column
    column = nan_to_null(column)
    values = column.flatten()
    return column if not values.null_count else _replace_values(column, values, np.asarray(values.is_valid()))


def _lists(column: pa.Array) -> pa.Array:
    before = column.flatten()
    values = nan_to_null(before)
    if values is before:
        return column
    is_single = np.repeat(_sizes(column) == 1, _sizes(column))
    is_nan = np.asarray(values.is_null()) & np.asarray(before.is_valid())
    return _replace_values(column, values, ~(is_single & is_nan))


def _replace_values(column: pa.Array, values: pa.Array, keep: npt.NDArray[np.bool_]) -> pa.Array:
    """Replace the values of a column's lists, keeping only some values. Lists that lose all values become null."""
    sizes = _sizes(column)
    counts = np.append(0, np.cumsum(keep))
    ends = np.append(0, np.cumsum(sizes))
    offsets = counts[ends]
    is_null = np.asarray(column.is_null()) | ((sizes > 0) & (np.diff(offsets) == 0))
    is_large = pa.types.is_large_list(column.type)
    lists, type_ = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return lists.from_arrays(pa.array(offsets, type_, mask=np.append(is_null, False)), values.filter(pa.array(keep)))


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
