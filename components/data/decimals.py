"""Convert float32 values of tf.Examples to the float64 values that were read.

A tf.Example stores floats as float32. The float64 value of a stored 0.7 is 0.699999988079071, so `price >= 0.7` would
be false for a price of 0.7. The shortest decimal number that rounds to a float32 value is the number in the file if
that number has at most six significant digits, and in most cases with seven. Its float64 value therefore compares with
a constant of the config as the number in the file does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def decimal_numbers(column: pa.Array) -> pa.Array:
    """Return the float64 values of the shortest decimals that round to float32 values.

    Args:
      column: float32, null where missing; [rows]. An array of another type is returned unchanged.

    Returns:
      float64, [rows]. NaN and infinity stay as they are.
    """
    if not pa.types.is_float32(column.type):
        return column
    return column.cast(pa.string()).cast(pa.float64())


def number_text(value: float) -> str:
    """Return an integer in full, and a float as the shortest decimal that rounds to its float32 value, without `.0`."""
    if isinstance(value, int):
        return str(value)
    single = np.float32(value)
    # str() switches to exponents at a size that depends on NumPy's version.
    is_plain = not single or 1e-4 <= abs(single) < 1e16
    return (np.format_float_positional if is_plain else np.format_float_scientific)(single, trim="-")
