"""Recognise and parse numbers in text, in the forms in which people write them."""

from __future__ import annotations

import typing
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from components.ingest.text_config import NumberForm

NUMBER_WITH_COMMA = r"^\s*[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]*)(?:,[0-9]*)?(?:[eE][-+]?[0-9]+)?\s*$"
"""Matches a number with a decimal comma, with or without points between thousands."""

_SPACE = "(?: |\u00a0|\u202f)"
_CURRENCY = r"(?:\$|€|£|¥|₹|USD|EUR|GBP|CHF|JPY|INR)"
_WITH_POINT = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)"
_WITH_COMMA = rf"(?:(?:[0-9]{{1,3}}(?:(?:\.|'|{_SPACE})[0-9]{{3}})+|[0-9]+)(?:,[0-9]*)?|,[0-9]+)"
_MARKS = rf"\s|{_SPACE}|{_CURRENCY}|[%+()']"
"""Matches spaces, currencies and signs that are removed before parsing. Binary text is matched byte by byte, so a
character class in brackets can only contain ASCII."""


def number_pattern(form: NumberForm, decimal: str) -> str:
    """Return a regular expression, for binary text in UTF-8, that matches numbers in a form.

    Args:
      form: Form of the numbers.
      decimal: Decimal sign of the table, a point or a comma. The forms `thousands` and `decimal_comma` ignore it.
    """
    has_comma = form == "decimal_comma" or (decimal == "," and form != "thousands")
    number = _WITH_COMMA if has_comma else _WITH_POINT
    amount = rf"(?:{_CURRENCY}{_SPACE}?)?[-+]?{number}(?:{_SPACE}?{_CURRENCY})?"
    body = {
        "thousands": rf"[-+]?{number}",
        "decimal_comma": rf"[-+]?{number}",
        "percent": rf"[-+]?{number}{_SPACE}?%",
        "currency": rf"(?:{amount}|-{_CURRENCY}{_SPACE}?{number})",
        "accounting": rf"(?:{amount}|-{_CURRENCY}{_SPACE}?{number}|"
        rf"\({_CURRENCY}?{_SPACE}?{number}{_SPACE}?{_CURRENCY}?\))",
    }[form]
    return rf"^\s*{body}\s*$"


def plain_numbers(column: pa.Array, form: NumberForm, decimal: str) -> pa.Array:
    """Convert numbers in a form to plain ones, such as `$1,200` to `1200`, `12 %` to `12e-2` and `(5)` to `-5`.

    Args:
      column: Text in UTF-8; binary, null where missing.
      form: The form of its numbers.
      decimal: Decimal sign of the result; see also `number_pattern`.

    Returns:
      The column; binary. A text in another form stays as it is.
    """
    has_comma = form == "decimal_comma" or (decimal == "," and form != "thousands")
    bare = pc.replace_substring_regex(column, _MARKS, "")
    bare = pc.replace_substring(bare, "." if has_comma else ",", "")
    bare = pc.replace_substring(bare, "," if has_comma else ".", decimal)
    if form == "percent":
        bare = pc.binary_join_element_wise(bare, pa.scalar(b"e-2"), pa.scalar(b""))
    if form == "accounting":
        negative = pc.binary_join_element_wise(pa.scalar(b"-"), bare, pa.scalar(b""))
        bare = pc.if_else(pc.match_substring(column, "("), negative, bare)
    return pc.if_else(pc.match_substring_regex(column, number_pattern(form, decimal)), bare, column)


def find_form(texts: pa.Array, counts: pa.Array, decimal: str) -> NumberForm | None:
    """Return the form of at least 99 % of a column's values, or None.

    Only unambiguous values are evidence for a form: digits alone may be codes, and the comma of `1,234` may be a
    decimal comma or separate thousands.

    Args:
      texts: Distinct texts in UTF-8; binary, without null.
      counts: Number of rows per text; int64.
      decimal: Decimal sign of the table.
    """
    rows = pc.sum(counts).as_py() or 0
    if pc.any(pc.match_substring_regex(texts, r"^\s*[+]?0[0-9]")).as_py():
        return None
    is_open = pc.match_substring_regex(texts, r"^\s*[-+]?[0-9]{1,3}(?:[.,][0-9]{3})?\s*$")
    is_plain = pc.match_substring_regex(texts, r"^\s*[-+]?[0-9]*[.]?[0-9]*\s*$")
    forms: tuple[NumberForm, ...] = typing.get_args(NumberForm)
    for form in forms:
        is_number = pc.match_substring_regex(texts, number_pattern(form, decimal))
        is_evidence = pc.and_not(pc.and_not(is_number, is_open), is_plain)
        if (pc.sum(counts.filter(is_number)).as_py() or 0) >= 0.99 * rows and pc.any(is_evidence).as_py():
            return form
    return None


def parse_number(text: bytes, number: Callable[[str], float] = float) -> float:
    """Parse a number by Python's rules, but refuse underscores: `1_11` is a name rather than the integer 111.

    Args:
      text: Field of the data.
      number: `int` or `float`.

    Raises:
      ValueError: If the text is not a number.
    """
    if b"_" in text:
        raise ValueError(f"expected a number without underscores, received {text!r}")
    return number(text.decode())


def with_point(column: pa.Array) -> pa.Array:
    """Replace the decimal comma of numbers by a decimal point, in text (binary, null where missing).

    Points between thousands are removed: `1.234,5` becomes `1234.5`. Other texts must not become numbers: the point of
    `2.5` becomes a comma, because it does not separate thousands.
    """
    is_number = pc.match_substring_regex(column, NUMBER_WITH_COMMA)
    points = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
    return pc.if_else(is_number, points, pc.replace_substring(column, ".", ","))
