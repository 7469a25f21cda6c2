"""Dates that the graph parses equal Python's."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.data.date_texts import Order, Unit, parse_date
from components.features import dates
from components.features.column import column
from components.features.date_ops import SPANS, Part

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST = (date(1, 1, 1) - date(1970, 1, 1)).days
LAST = (date(9999, 12, 31) - date(1970, 1, 1)).days


def parts(values: Any, unit: Unit = "seconds", order: Order = "ymd") -> tuple[dict[str, list[int]], list[bool]]:
    """Return all parts of dates, and which dates could be parsed."""
    when = column("when", tf.constant(values, tf.int64 if isinstance(values[0], int) else tf.string))
    result = {part: dates.part_of(when, part, unit, order) for part in get_args(Part) if part != "holiday"}
    (known,) = {tuple(present.numpy().tolist()) for _, present in result.values()}
    return {part: value.numpy().tolist() for part, (value, _) in result.items()}, list(known)


def compute_by_python(when: datetime) -> dict[str, int]:
    return {
        "year": when.year,
        "month": when.month,
        "day": when.day,
        "weekday": when.weekday(),
        "hour": when.hour,
        "minute": when.minute,
        "day_of_year": when.timetuple().tm_yday,
    }


def at(result: dict[str, list[int]], index: int) -> dict[str, int]:
    return {part: values[index] for part, values in result.items()}


def test_every_day_of_five_hundred_years_and_back() -> None:
    days = range((date(1599, 12, 1) - date(1970, 1, 1)).days, (date(2101, 2, 1) - date(1970, 1, 1)).days)
    result, known = parts(list(days), "days")
    assert all(known)
    python = [compute_by_python(EPOCH + timedelta(days=day)) for day in days]
    for part in ("year", "month", "day", "weekday", "day_of_year"):
        assert result[part] == [python_parts[part] for python_parts in python], part
    back = dates.days_of(*(tf.constant(result[part], tf.int64) for part in ("year", "month", "day")))
    assert back.numpy().tolist() == list(days)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(FIRST * 86_400, LAST * 86_400), min_size=1, max_size=20))
def test_seconds_and_milliseconds_are_converted(seconds: list[int]) -> None:
    for unit, values in (("seconds", seconds), ("milliseconds", [second * 1000 + 999 for second in seconds])):
        result, _ = parts(values, unit)  # type: ignore[arg-type]
        for index, second in enumerate(seconds):
            assert at(result, index) == compute_by_python(EPOCH + timedelta(seconds=second))


@settings(max_examples=50, deadline=None)
@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.none() | st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from("T "),
)
def test_text_in_iso_8601(when: datetime, ahead: int | None, precision: str, between: str) -> None:
    zone = timezone.utc if ahead is None else timezone(timedelta(minutes=ahead))
    zoned = when.replace(tzinfo=zone)
    text = (when if ahead is None else zoned).isoformat(between, precision)
    result, known = parts([text.encode()])
    assert known == [True]
    assert at(result, 0) == compute_by_python(zoned.astimezone(timezone.utc))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2024-03-01", (2024, 3, 1, 0, 0)),
        ("2024-02-29", (2024, 2, 29, 0, 0)),
        ("2000-02-29", (2000, 2, 29, 0, 0)),
        (" 2024-03-01 17:05:00 ", (2024, 3, 1, 17, 5)),
        ("2024-03-01T17:05:00Z", (2024, 3, 1, 17, 5)),
        ("2024-03-01 03:04:05.123", (2024, 3, 1, 3, 4)),
        ("2024-03-01 17:05:00 UTC", (2024, 3, 1, 17, 5)),
        ("2024-01-01T00:30:00+01:00", (2023, 12, 31, 23, 30)),
        ("2023-12-31T23:30:00-0045", (2024, 1, 1, 0, 15)),
        ("2016-12-31T23:59:60Z", (2016, 12, 31, 23, 59)),
        ("2024/03/01", (2024, 3, 1, 0, 0)),
        ("2024.03.01 17:05", (2024, 3, 1, 17, 5)),
        ("2024-3-1", (2024, 3, 1, 0, 0)),
        ("2024-3-1 9:05", (2024, 3, 1, 9, 5)),
        ("2024/12/3 9:05 PM", (2024, 12, 3, 21, 5)),
        ("2024-03-01, 12:05 AM", (2024, 3, 1, 0, 5)),
        ("2024-03-01 17:05:00+00", (2024, 3, 1, 17, 5)),
        ("2024-03-01 17:05:00+0530", (2024, 3, 1, 11, 35)),
        ("2024-03-01 17:05:00-05", (2024, 3, 1, 22, 5)),
        ("2024-03-01T17:05:00 +05:30", (2024, 3, 1, 11, 35)),
        ("2024-03-01T17:05:00 GMT", (2024, 3, 1, 17, 5)),
        ("2024-03-01 17:05:00UTC", (2024, 3, 1, 17, 5)),
        ("1850-06-15 12:30Z", (1850, 6, 15, 12, 30)),
        ("0001-01-01", (1, 1, 1, 0, 0)),
    ],
)
def test_date_in_text_is_parsed(text: str, when: tuple[int, ...]) -> None:
    result, known = parts([text.encode()])
    assert known == [True]
    assert at(result, 0) == compute_by_python(datetime(*when, tzinfo=timezone.utc))  # type: ignore[misc, arg-type]
    parsed = parse_date(text)
    assert parsed is not None
    assert (*parsed.timetuple()[:5],) == when


@settings(max_examples=50, deadline=None)
@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from([":", ""]),
)
def test_host_and_graph_parse_the_same_time(when: datetime, ahead: int, precision: str, colon: str) -> None:
    zoned = when.replace(tzinfo=timezone(timedelta(minutes=ahead)))
    text = zoned.isoformat(" ", precision)
    python = datetime.fromisoformat(text)
    text = f"{text[:-3]}{colon}{text[-2:]}"
    assert parse_date(text) == python
    result, _ = parts([text.encode()])
    assert at(result, 0) == compute_by_python(python.astimezone(timezone.utc))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 12, 31)), min_size=1, max_size=9),
    st.sampled_from([("dmy", "%d", "%m"), ("mdy", "%m", "%d")]),
    st.sampled_from("./-"),
    st.sampled_from(["", " %H:%M", " %H:%M:%S", "T%H:%M:%S.%f", ", %I:%M %p", " %I:%M:%S%p"]),
    st.booleans(),
)
def test_text_with_the_day_or_month_first_is_parsed(
    whens: list[datetime], form: Any, between: str, time: str, zeros: bool
) -> None:
    order, *two = form
    texts = [when.strftime(between.join([*two, "%Y"]) + time) for when in whens]
    if not zeros:
        texts = [re.sub(r"(?<![\d:])0(?=\d)", "", text) for text in texts]
    result, known = parts([text.encode() for text in texts], order=order)
    assert known == [True] * len(texts)
    for index, when in enumerate(whens):
        exact = when if time else when.replace(hour=0, minute=0)
        assert at(result, index) == compute_by_python(exact.replace(tzinfo=timezone.utc)), texts[index]


@pytest.mark.parametrize(
    ("order", "text", "when"),
    [
        ("dmy", b"31.12.2024", (2024, 12, 31, 0, 0)),
        ("dmy", b"3/4/2024 9:05", (2024, 4, 3, 9, 5)),
        ("mdy", b"3/4/2024 9:05 am", (2024, 3, 4, 9, 5)),
        ("mdy", b" 12/31/2024 12:30 AM ", (2024, 12, 31, 0, 30)),
        ("mdy", b"12/31/2024 12:30 PM", (2024, 12, 31, 12, 30)),
        ("mdy", b"12/31/2024, 11:59:59 pm", (2024, 12, 31, 23, 59)),
        ("dmy", b"31.12.2024 17:05 +0530", (2024, 12, 31, 11, 35)),
        ("dmy", b"31.12.2024 17:05 GMT", (2024, 12, 31, 17, 5)),
        ("mdy", b"12/31/2024 5:05 PM -05", (2024, 12, 31, 22, 5)),
        ("mdy", b"1/2/1850", (1850, 1, 2, 0, 0)),
        ("dmy", b"12/31/2024", None),
        ("mdy", b"31.12.2024", None),
        ("dmy", b"29.02.2023", None),
        ("dmy", b"31.12.24", None),
        ("dmy", b"2024-12-31", None),
        ("dmy", b"0.1.2024", None),
        ("dmy", b"31.12.2024 25:00", None),
        ("dmy", b"31.12.2024 17:05 and more", None),
        ("mdy", b"", None),
        ("ymd", b"31.12.2024", None),
    ],
)
def test_configured_order_of_day_and_month_is_used(order: Order, text: bytes, when: tuple[int, ...] | None) -> None:
    result, known = parts([text], order=order)
    assert known == [when is not None]
    parsed = parse_date(text.decode(), order)
    assert (parsed is None) == (when is None)
    if when and parsed:
        assert at(result, 0) == compute_by_python(datetime(*when, tzinfo=timezone.utc))
        assert (*parsed.timetuple()[:5],) == when


@pytest.mark.parametrize(
    "text",
    [
        b"", b"tomorrow", b"2024", b"202431", b"01.03.2024", b"0000-01-01",
        b"2024-13-01", b"2024-00-10", b"2024-02-30",
        b"2023-02-29", b"1900-02-29", b"2024-04-31", b"2024-03-01T24:00", b"2024-03-01T17:60", b"2024-03-01T17",
        b"2024-03-01T17:05:00+", b"2024-03-01T17:05+5", b"2024-03-01T17:05 CET",
        b"2024-03-01 and more", b"0000-00-00", b"\xff2024-03-01", b"2024-03-01\n2024-03-02",
    ],
)  # fmt: skip
def test_text_that_is_not_a_date_is_missing(text: bytes) -> None:
    _, known = parts([text, b"2024-03-01"])
    assert known == [False, True]
    assert parse_date(text.decode(errors="replace")) is None


def test_parts_of_extreme_int64_dates_stay_in_range() -> None:
    ends = [np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max]
    for unit in get_args(Unit):
        result, _ = parts([int(number) for number in ends], unit)
        for part in SPANS.keys() - {"holiday"}:
            span = SPANS[part]
            assert all(span.first <= value < span.first + span.count for value in result[part]), (unit, part)
