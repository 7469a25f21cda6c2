"""Numbers in texts: what counts as a number, and the forms in which people write one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

NUMBER_WITH_COMMA = r"^\s*[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]*)(?:,[0-9]*)?(?:[eE][-+]?[0-9]+)?\s*$"
"""A number with a decimal comma, and with points between thousands or without."""


def parse_number(text: bytes, number: Callable[[str], float] = float) -> float:
    """Parse a number by Python's rules, without its underscores: `1_11` is a name rather than the integer 111.

    Args:
      text: A field of the data.
      number: `int` or `float`.

    Raises:
      ValueError: The text is not a number.
    """
    if b"_" in text:
        raise ValueError(f"expected a number without underscores, received {text!r}")
    return number(text.decode())


def with_point(column: pa.Array) -> pa.Array:
    """Convert numbers with a decimal comma to ones with a decimal point, in text (binary, null where missing).

    Points between thousands are removed: `1.234,5` becomes `1234.5`. Other texts stay, but never become numbers: in
    `2.5` the point becomes a comma, since there it separates no thousands.
    """
    is_number = pc.match_substring_regex(column, NUMBER_WITH_COMMA)
    points = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
    return pc.if_else(is_number, points, pc.replace_substring(column, ".", ","))
