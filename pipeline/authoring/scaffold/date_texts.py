"""Detects columns of dates, and derives the order of day, month and year from their values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.data.date_texts import FORMS, Order, parse_date

_MOST_OTHERS = 0.05
"""Maximum share of values that are not dates, such as 00.00.0000. date_parts treats them as missing."""
_TRIED = 500
"""Number of distinct values to parse first, so that columns of other texts are rejected quickly."""


@dataclass(frozen=True)
class DateTexts:
    """A column of dates.

    Attributes:
      order: Order of day, month and year.
      values: Values that are dates in this order, datetime64[s], shape [dates].
      why: Reason for the order; "" for ISO 8601.
      invalid_count: Number of values that are not dates.
    """

    order: Order
    values: npt.NDArray[np.datetime64]
    why: str
    invalid_count: int


def dates_in(name: str, present: npt.NDArray[np.object_], given: Order | None) -> DateTexts | None:
    """Return the dates of a column, or None if it does not contain dates.

    Args:
      name: Name of the column, for the error message.
      present: Texts of the column, str, without missing values.
      given: Order to use if the values can be read in both orders.

    Raises:
      InputError: If the values can be read with the day or the month first, and `given` is None.
    """
    distinct, counts = np.unique(present.astype(str), return_counts=True)
    # The share is measured on a part of the values, so allow twice as many other values as below.
    tried = distinct[:: max(1, len(distinct) // _TRIED)]
    likely = [order for order in FORMS if _share(_parse_dates(tried, order)) > 1 - 2 * _MOST_OTHERS]
    parsed = {order: _parse_dates(distinct, order) for order in likely}
    valid = {order: np.array([date is not None for date in values]) for order, values in parsed.items()}
    rows = {order: int(counts[are_dates].sum()) for order, are_dates in valid.items()}
    orders = [order for order in likely if rows[order] >= (1 - _MOST_OTHERS) * len(present)]
    if not orders:
        return None
    order = max(orders, key=lambda candidate: rows[candidate])
    why = ""
    if order != "ymd":
        other_order: Order = "mdy" if order == "dmy" else "dmy"
        if other_order in orders and rows[order] == rows[other_order]:
            if given is None:
                raise _ambiguous(name, distinct[valid[order]][0])
            order, why = given, f"order {given} by --date-order"
        else:
            shown = next(text for text in distinct[valid[order]] if parse_date(text, other_order) is None)
            why = f"order {order}: {shown!r}"
    times = zip(parsed[order], counts, strict=True)
    # The times are in UTC. Remove their time zone, because NumPy cannot represent it.
    values = [time.replace(tzinfo=None) for time, count in times if time for _ in range(count)]
    return DateTexts(order, np.array(values, "datetime64[s]"), why, len(present) - rows[order])


def _parse_dates(texts: Iterable[str], order: Order) -> list[datetime | None]:
    return [parse_date(text, order) for text in texts]


def _share(parsed: list[datetime | None]) -> float:
    return sum(date is not None for date in parsed) / max(1, len(parsed))


def _ambiguous(name: str, text: str) -> InputError:
    return InputError(
        f"--data: the dates of the column {name!r}, such as {text!r}, begin with the day or with the month: no value "
        "shows which",
        "give --date-order dmy (the day first) or --date-order mdy (the month first)",
    )
