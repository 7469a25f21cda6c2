"""Tests that invalid rows are rejected, and that unusual rows are counted as by pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from components.results.request_schema import Column, RequestSchema
from components.serving.server.errors import RequestError
from components.serving.server.row_check import MISSING, OUT_OF_DOMAIN, OUT_OF_RANGE, RowCheck, RowChecks

MISSING_INT = np.iinfo(np.int64).min
SCHEMA = RequestSchema(
    columns={
        "fare": Column(dtype="float32", required=True, always_present=True, least=0.5, greatest=100),
        "miles": Column(dtype="float32", always_present=True, least=0, greatest=10),
        "latitude": Column(dtype="float32"),
        "hour": Column(dtype="int64", required=True, always_present=True, least=0, greatest=23),
        "area": Column(dtype="int64", least=1, greatest=77),
        "payment": Column(dtype="string", required=True, always_present=True, domain=("Cash", "Card")),
        "company": Column(dtype="string", domain=("Blue", "Łódź")),
        "note": Column(dtype="string"),
        "past": Column(dtype="float32", always_present=True, most_values=None, least=0, greatest=5),
        "words": Column(dtype="string", most_values=None),
    },
    other_columns=("tips",),
)
ROW: Mapping[str, Any] = {
    "fare": 7.5, "miles": 2.0, "latitude": 41.9, "hour": 8, "area": 3, "payment": b"Cash", "company": b"Blue",
    "note": b"x", "past": [1.0, 2.0], "words": [b"a"],
}  # fmt: skip
LISTS = {"string": "bytes_list", "int64": "int64_list", "float32": "float_list"}
MISSING_VALUES = {"string": b"", "int64": MISSING_INT, "float32": np.nan}


def create(signature: str, inputs: Iterable[str] = (), schema: RequestSchema = SCHEMA, key: str = "") -> RowCheck:
    row_check = RowChecks(schema, key).create(signature, inputs)
    assert row_check is not None
    return row_check


def example(row: Mapping[str, Any]) -> bytes:
    message = tf.train.Example()
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
        kind = kinds[type(values[0])] if values else LISTS[SCHEMA.columns[name].dtype]
        getattr(message.features.feature[name], kind).value.extend(values)
    return bytes(message.SerializeToString())


def check_examples(*rows: Mapping[str, Any] | bytes, key: str = "") -> dict[tuple[str, str], int]:
    serialized = [row if isinstance(row, bytes) else example(row) for row in rows]
    return dict(create("serving_default", key=key).check({"examples": np.array(serialized, object)}))


def columns(*rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows as inputs of the signature `raw`, with lists padded by missing values."""
    result = {}
    for name, column in SCHEMA.columns.items():
        missing = MISSING_VALUES[column.dtype]
        values = [row.get(name, [] if column.most_values is None else missing) for row in rows]
        if column.most_values is None:
            width = max(map(len, values))
            values = [[*value, *[missing] * (width - len(value))] for value in values]
        result[name] = np.array(values, object if column.dtype == "string" else column.dtype)
    return result


def check_columns(*rows: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return dict(create("raw", SCHEMA.columns).check(columns(*rows)))


def check_matrices(*rows: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Check the columns with a single value per row as inputs of the signature `matrix`."""
    single = {name: column for name, column in SCHEMA.columns.items() if column.most_values == 1}
    values = columns(*rows)
    matrices = {
        dtype: np.stack([values[name] for name, column in single.items() if column.dtype == dtype], axis=1)
        for dtype in LISTS
    }
    return dict(create("matrix", schema=RequestSchema(columns=single)).check(matrices))


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


def test_usual_rows_pass() -> None:
    assert check_examples(ROW, ROW) == check_columns(ROW, ROW) == {}
    assert check_examples({**ROW, "tips": 1.0}) == {}
    assert create("serving_default").check({"examples": np.empty(0, object)}) == {}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"", ["expected a tf.Example with at least one feature", "received none in row 1", "send"]),
        (example({"note": []}), ["at least one feature"]),
        ({**without("fare"), "faer": 7.5}, ["received 'faer'; did you mean 'fare'?"]),
        ({**ROW, "unheard_of": 1}, ["received 'unheard_of'"]),
        ({**ROW, "fare": [7.5, 7.5]}, ["'fare': expected at most 1 value(s), received 2 in row 1; send"]),
        ({**ROW, "note": [b"a", b"b"]}, ["'note': expected at most 1 value(s), received 2"]),
        ({**ROW, "latitude": [1.0, 2.0, 3.0]}, ["'latitude': expected at most 1 value(s), received 3"]),
        (without("fare"), ["column 'fare': expected a value in each row", "in row 1; send"]),
        ({**ROW, "fare": []}, ["column 'fare': expected a value"]),
        ({**ROW, "fare": float("nan")}, ["column 'fare': expected a value"]),
        ({**ROW, "fare": float("-inf")}, ["column 'fare': expected a value"]),
        (without("hour"), ["column 'hour': expected a value"]),
        ({**ROW, "hour": MISSING_INT}, ["column 'hour': expected a value"]),
        (without("payment"), ["column 'payment': expected a value"]),
        ({**ROW, "fare": 7}, ["wrong type"]),
        (b"\xff\xff", ["expected serialized tf.Examples"]),
    ],
)
def test_invalid_examples_are_rejected(row: Any, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        check_examples(ROW, row)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "received"), [("fare", 7, "int64_list"), ("hour", 8.0, "float_list"), ("note", 1, "int64_list")]
)
def test_wrong_type_is_named(name: str, value: Any, received: str) -> None:
    expected = LISTS[SCHEMA.columns[name].dtype]
    with pytest.raises(RequestError, match=f"'{name}': expected {expected}, received {received}; send"):
        check_examples({**ROW, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("fare", np.nan), ("fare", np.inf), ("fare", -np.inf), ("hour", MISSING_INT), ("payment", b"")],
)
def test_columns_without_a_required_value_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"column '{name}': expected a value in each row.* in row 2; send"):
        check_columns(ROW, ROW, {**ROW, name: value})


def test_unusual_values_are_counted() -> None:
    unusual = {**without("miles"), "fare": 1e30, "area": 78, "payment": b"Mobile", "company": "Łódź".encode()}
    expected = {
        ("fare", OUT_OF_RANGE): 2, ("area", OUT_OF_RANGE): 2, ("payment", OUT_OF_DOMAIN): 2, ("miles", MISSING): 2,
        ("past", OUT_OF_RANGE): 3, ("past", MISSING): 1,
    }  # fmt: skip
    rows = ({**unusual, "past": [6.0, 1.0, -1.0, 9.0]}, ROW, {**unusual, "past": []})
    assert check_examples(*rows) == expected
    assert check_columns(*rows) == expected


def test_values_equal_to_a_bound_are_in_range() -> None:
    assert check_columns({**ROW, "fare": 0.5}, {**ROW, "fare": 100.0}, {**ROW, "hour": 0}, {**ROW, "hour": 23}) == {}
    assert check_columns({**ROW, "fare": np.nextafter(np.float32(100), np.float32(200))}) == {("fare", OUT_OF_RANGE): 1}


def test_key_column_of_the_request_log_is_accepted() -> None:
    assert check_examples({**ROW, "trip": b"t1"}, key="trip") == {}
    with pytest.raises(RequestError, match="received 'trip'"):
        check_examples({**ROW, "trip": b"t1"})


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_pandas(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 200))
    frame = pd.DataFrame(
        {
            "fare": random.uniform(-20, 120, count).astype(np.float32),
            "miles": np.where(random.random(count) < 0.2, np.nan, random.uniform(-1, 12, count)).astype(np.float32),
            "latitude": np.where(random.random(count) < 0.5, np.nan, 1e30).astype(np.float32),
            "hour": random.integers(-3, 27, count),
            "area": np.where(random.random(count) < 0.3, np.nan, random.integers(0, 90, count)),
            "payment": random.choice([b"Cash", b"Card", b"Mobile", b"\xff"], count),
            "company": random.choice(np.array([b"Blue", b"Red", None], object), count),
        }
    )
    expected = {
        (name, OUT_OF_RANGE): int(((frame[name] < column.least) | (frame[name] > column.greatest)).sum())
        for name, column in SCHEMA.columns.items()
        if column.least is not None and name in frame
    }
    expected["miles", MISSING] = int(frame["miles"].isna().sum())
    expected["payment", OUT_OF_DOMAIN] = int(((frame["payment"] != b"Cash") & (frame["payment"] != b"Card")).sum())
    expected["company", OUT_OF_DOMAIN] = int((frame["company"].notna() & (frame["company"] != b"Blue")).sum())
    expected = {key: number for key, number in expected.items() if number}
    rows = [
        {
            "past": [1.0],
            **{
                name: int(value) if name == "area" else value
                for name, value in zip(frame, row, strict=True)
                if not pd.isna(value)
            },
        }
        for row in zip(*(frame[name].tolist() for name in frame), strict=True)
    ]
    assert check_examples(*rows) == expected
    assert check_columns(*rows) == expected
    # The counts of requests add up to the counts of a batch of all requests.
    parts = [check_columns(*rows[start : start + 7]) for start in range(0, count, 7)]
    assert sum(map(Counter, parts), Counter()) == expected


def test_signature_with_some_of_the_columns_is_checked() -> None:
    """Signatures of retrieval towers only take some of the columns."""
    check = create("raw", ["hour", "words"])
    hour, words = np.array([1, 30]), np.array([[b"a"], [b""]], object)
    assert dict(check.check({"hour": hour, "words": words})) == {("hour", OUT_OF_RANGE): 1}


def test_counts_of_several_checks_add_up() -> None:
    all_checks = RowChecks(SCHEMA)
    for fare in (1e30, -1.0):
        all_checks.count(create("raw", SCHEMA.columns).check(columns({**ROW, "fare": fare})))
    assert dict(all_checks.read_counts()) == {("fare", OUT_OF_RANGE): 2}


def test_matrices_are_checked_like_columns() -> None:
    unusual = {**ROW, "miles": 11.0, "area": MISSING_INT, "company": b"Red"}
    assert check_matrices(ROW, unusual) == {("miles", OUT_OF_RANGE): 1, ("company", OUT_OF_DOMAIN): 1}
    assert check_matrices(ROW, unusual) == check_columns(ROW, unusual)
    with pytest.raises(RequestError, match=r"column 'hour': expected a value in each row, .* in row 1"):
        check_matrices(ROW, {**ROW, "hour": MISSING_INT})
