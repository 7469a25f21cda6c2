"""The forms of dates in texts, for the transform graph and for Python."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Literal

Order = Literal["ymd", "dmy", "mdy"]
"""Order of day, month and year."""
Unit = Literal["seconds", "milliseconds", "days"]
"""Unit of a time that is a number since 1970-01-01 UTC."""

_YEAR, _MONTH, _DAY = r"(?P<year>\d{4})", r"(?P<month>0?[1-9]|1[0-2])", r"(?P<day>0?[1-9]|[12]\d|3[01])"
_SECOND = r"(?:[0-5]\d|60)(?:[.,]\d+)?"
_HALF = r"(?: ?(?P<half>[AaPp])[Mm])?"
_ZONE = r"(?: ?[Zz]| ?UTC| ?GMT| ?(?:\+|(?P<sign>-))(?P<hours>[01]\d|2[0-3])(?::?(?P<minutes>[0-5]\d))?)?"
_CLOCK = rf"(?:(?:,? |[Tt])(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::{_SECOND})?{_HALF}{_ZONE})?"
FORMS: dict[Order, tuple[str, str]] = {
    "ymd": (rf"{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}{_CLOCK}", r"\1,\2,\3,0\4,0\5,\70\8,\70\9"),
    "dmy": (rf"{_DAY}[-/.]{_MONTH}[-/.]{_YEAR}{_CLOCK}", r"\3,\2,\1,0\4,0\5,\70\8,\70\9"),
    "mdy": (rf"{_MONTH}[-/.]{_DAY}[-/.]{_YEAR}{_CLOCK}", r"\3,\1,\2,0\4,0\5,\70\8,\70\9"),
}
"""Order → regular expression of a date; and replacement that extracts year, month, day, hour, minute, and the signed
hours and minutes of the offset from UTC. RE2 can refer to at most nine groups, so the second is not a group."""
_SECOND_GROUPS = r"(?P<second>[0-5]\d|60)(?:[.,](?P<fraction>\d+))?"
_PATTERNS = {order: re.compile(form.replace(_SECOND, _SECOND_GROUPS), re.ASCII) for order, (form, _) in FORMS.items()}


def parse_date(text: str, order: Order = "ymd") -> datetime | None:
    """Parse a date as the transform graph does.

    Args:
      text: A date, or a date and a time, in UTC unless it contains an offset.
      order: Order of day, month and year.

    Returns:
      The time in UTC, with microseconds. A leap second becomes the second before it. None if the text is not a date.
    """
    match = _PATTERNS[order].fullmatch(text.strip())
    if match is None:
        return None
    hour = int(match["hour"] or 0)
    if match["half"]:
        hour = hour % 12 + 12 * (match["half"] in "Pp")
    offset = timedelta(hours=int(match["hours"] or 0), minutes=int(match["minutes"] or 0))
    try:
        local = datetime(
            int(match["year"]),
            int(match["month"]),
            int(match["day"]),
            hour,
            int(match["minute"] or 0),
            min(int(match["second"] or 0), 59),
            int((match["fraction"] or "0")[:6].ljust(6, "0")),
            tzinfo=timezone.utc,
        )
        return local + offset if match["sign"] else local - offset
    except (ValueError, OverflowError):
        return None
