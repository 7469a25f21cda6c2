"""Dates in the transform graph: days and minutes since 1970-01-01 00:00 UTC, and the parts of a date.

Source of the conversions between days and dates: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms. They use
integers only, and are exact for every day of the proleptic Gregorian calendar.
"""

from __future__ import annotations

import tensorflow as tf

from components.data.date_texts import FORMS, Order, Unit
from components.features.column import Column, FirstValues, graph_function
from components.features.date_ops import Part
from components.features.holiday_days import find_holidays

_PER_DAY: dict[Unit, int] = {"seconds": 86_400, "milliseconds": 86_400_000, "days": 1}
_MINUTES = 1440
_EPOCH: dict[Order, str] = {"ymd": "1970-01-01", "dmy": "01.01.1970", "mdy": "01/01/1970"}


def part_of(
    column: FirstValues, part: Part, unit: Unit, order: Order = "ymd", holidays: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute a part of the dates in a column or in a group of columns.

    Args:
      column: Dates as int64, in `unit` since 1970-01-01 UTC, or as strings.
      part: Part to compute.
      unit: Unit of integers.
      order: Order of day, month and year in strings. The default is ISO 8601.
      holidays: Region of the holidays; for the part `holiday` only.

    Returns:
      The part, int64, which starts at date_ops.SPANS[part].first; and whether the value is a date, bool. Both have the
      shape of the column's values.
    """
    # Flatten the values, because a graph function that is traced for several ranks loses the static shape.
    values, present = (tf.reshape(tensor, [-1]) for tensor in (column.values, column.present))
    if column.dtype == "bytes":
        days, minutes, present = _parse_texts(values, present, order)
    else:
        days, minutes = _divide_numbers(values, _PER_DAY[unit])
    if holidays is not None:
        first, table = find_holidays(holidays)
        is_holiday, is_known = _look_up_holidays(days - first, tf.constant(table))
        return _reshape_as(is_holiday, column.values), _reshape_as(present & is_known, column.values)
    return _reshape_as(_part(days, minutes, part), column.values), _reshape_as(present, column.values)


def _reshape_as(flat: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.reshape(flat, tf.shape(values)), values.shape)


def find_dates(column: Column, order: Order) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the texts of a column, and determine which of them are dates.

    Args:
      column: Column of texts.
      order: Order of day, month and year.

    Returns:
      The texts that are neither missing nor blank, string of shape [n]; and whether they are dates, bool of shape [n].
    """
    is_text = column.present & (tf.strings.strip(column.values) != "")
    _, _, valid = _parse_texts(column.values, is_text, order)
    return tf.boolean_mask(column.values, is_text), tf.boolean_mask(valid, is_text)


def seconds_of(column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert times to seconds since 1970 UTC. Times in texts are rounded down to minutes.

    Args:
      column: Numbers of seconds, or texts in ISO 8601.

    Returns:
      Seconds, int64 of shape [batch]; and whether the value is a time, bool of shape [batch].
    """
    if column.dtype == "bytes":
        days, minutes, present = _parse_texts(column.values, column.present, "ymd")
        return (days * _MINUTES + minutes) * 60, present
    return tf.cast(column.values, tf.int64), column.present


def civil(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Convert days since 1970-01-01 to year, month (from 1) and day of the month (from 1); all int64 of shape [n]."""
    # An era is 400 years. A year begins in March here, so that a leap day is the last day of a year.
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * from_march + 2) // 5 + 1
    month = tf.where(from_march < 10, from_march + 3, from_march - 9)
    return year_of_era + era * 400 + tf.cast(month <= 2, tf.int64), month, day


def days_of(year: tf.Tensor, month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    """Convert years, months and days of the month to days since 1970-01-01; all int64 of shape [n]."""
    from_march = year - tf.cast(month <= 2, tf.int64)
    era = from_march // 400
    year_of_era = from_march - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


@graph_function
def _divide_numbers(values: tf.Tensor, per_day: int) -> tuple[tf.Tensor, tf.Tensor]:
    return values // per_day, (values % per_day) * _MINUTES // per_day


@graph_function
def _parse_texts(texts: tf.Tensor, present: tf.Tensor, order: Order) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the days since 1970-01-01, the minutes of the day, and whether a text is a date."""
    form, fields_of_form = FORMS[order]
    stripped = tf.strings.strip(texts)
    present &= tf.strings.regex_full_match(stripped, form)
    safe = tf.where(present, stripped, tf.fill(tf.shape(stripped), _EPOCH[order]))
    fields = tf.strings.split(tf.strings.regex_replace(safe, f"^{form}$", fields_of_form), ",").flat_values
    numbers = tf.reshape(tf.strings.to_number(fields, tf.int64), [-1, 7])
    year, month, day, hour, minute, hours_ahead, minutes_ahead = tf.unstack(numbers, axis=1)
    # An offset may follow the time, but the names of offsets do not contain AM or PM.
    afternoon = tf.strings.regex_full_match(safe, ".*[Pp][Mm].*")
    twelve_hours = tf.strings.regex_full_match(safe, ".*[AaPp][Mm].*")
    hour = tf.where(twelve_hours, hour % 12, hour) + 12 * tf.cast(afternoon, tf.int64)
    days = days_of(year, month, day)
    # Reject the 30th of February, which would become the 1st or 2nd of March, and the year 0.
    present &= tf.equal(civil(days)[1], month) & (year > 0)
    minutes = (hour - hours_ahead) * 60 + minute - minutes_ahead
    return days + minutes // _MINUTES, minutes % _MINUTES, present


@graph_function
def _look_up_holidays(days: tf.Tensor, is_holiday: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return 1 for holidays and 0 for other days, int64; and whether the days, counted from the first, are known."""
    last = tf.size(is_holiday, tf.int64) - 1
    found = tf.gather(is_holiday, tf.clip_by_value(days, 0, last))
    return tf.cast(found, tf.int64), (days >= 0) & (days <= last)


@graph_function
def _part(days: tf.Tensor, minutes: tf.Tensor, part: Part) -> tf.Tensor:
    if part == "hour":
        return minutes // 60
    if part == "minute":
        return minutes % 60
    if part == "weekday":
        # 1970-01-01 was a Thursday.
        return (days + 3) % 7
    year, month, day = civil(days)
    if part == "day_of_year":
        return days - days_of(year, tf.ones_like(year), tf.ones_like(year)) + 1
    return {"year": year, "month": month, "day": day}[part]
