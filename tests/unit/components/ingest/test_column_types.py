"""A column gets the narrowest type that holds every value, in any order of the blocks, and its values are converted."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.data import arrow_columns
from components.ingest import column_types
from components.ingest.column_types import ColumnConverter, InvalidValue, Kind

pytestmark = pytest.mark.both_lines


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = [values if isinstance(values, pa.Array) else pa.array(values, pa.binary()) for values in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def take(
    block: pa.RecordBatch, configured: dict[str, Kind] | None = None, encoding: str | None = "utf-8", decimal: str = "."
) -> dict[str, list[Any]]:
    """Return a block as values: a first worker finds the kinds, and a second worker converts with these kinds."""
    finder = ColumnConverter(configured or {}, {}, encoding, decimal=decimal)
    _, invalid = finder.convert(block)
    assert not invalid
    converted, invalid = ColumnConverter(configured or {}, finder.kinds, encoding, decimal=decimal).convert(block)
    assert not invalid
    assert converted is not None
    for name, column in zip(converted.schema.names, converted.columns, strict=True):
        item = column.type.value_type if pa.types.is_list(column.type) else column.type
        assert item in (pa.int64(), pa.float32(), pa.binary(), pa.null())
        values = column.flatten() if pa.types.is_list(column.type) else column
        kind = (configured or {}).get(name, Kind.MISSING)
        assert finder.kinds[name] is not Kind.MISSING or arrow_columns.all_missing(values)
        assert kind in (Kind.MISSING, finder.kinds[name])
    return converted.to_pydict()


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ([b"1", b"-2", b"-07"], [1, -2, -7]),
        # Codes would lose their first character as numbers.
        ([b"01234", b"98765"], [b"01234", b"98765"]),
        ([b"98765", None, b"007"], [b"98765", None, b"007"]),
        ([b"1", b"0123456789"], [b"1", b"0123456789"]),
        ([b"0.5", b"01234"], [b"0.5", b"01234"]),
        ([b" 01 ", b"7"], [b" 01 ", b"7"]),
        ([b"+4930123456", b"+15551234567"], [b"+4930123456", b"+15551234567"]),
        ([b"0", b"-0", b"+0"], [0, 0, 0]),
        ([b"0", b"00.5", b"0.5"], [0.0, 0.5, 0.5]),
        ([b"1", None, b"2"], [1, None, 2]),
        ([b"1", b"2.5"], [1.0, 2.5]),
        ([b"1.0", b"2.0"], [1.0, 2.0]),
        ([b"1e3", b".5", b"-1."], [1000.0, 0.5, -1.0]),
        ([b"1", b"x"], [b"1", b"x"]),
        ([b"1.5", b"x"], [b"1.5", b"x"]),
        ([None, None], [None, None]),
        # Python's int and float decide what a number is, as in TFX's CsvExampleGen.
        ([b" 7", b"+8"], [7, 8]),
        # Underscores are an exception, because they occur in names. pandas reads these as texts, too.
        ([b"1_11", b"2"], [b"1_11", b"2"]),
        ([b"1.5", b"1_0.5"], [b"1.5", b"1_0.5"]),
        ([b"1.5", b"1_11"], [b"1.5", b"1_11"]),
        ([b"+8", b"9"], [8, 9]),
        ([b" 7", b"+8.5"], [7.0, 8.5]),
        ([b"0x1F", b"1"], [b"0x1F", b"1"]),
        ([b"1", b"nan", b"-0.0"], [1.0, None, 0.0]),
        ([b"inf", b"-Infinity", b"1.5"], [None, None, 1.5]),
        ([b"nan(1)", b"1.5"], [b"nan(1)", b"1.5"]),
        ([b"1e400", b"1.5"], [None, 1.5]),
        # A tf.Example stores floats as float32.
        ([b"0.1", b"1e300"], [float(np.float32(0.1)), None]),
        # An integer beyond int64 is an identifier, not a quantity.
        ([b"9223372036854775807", b"-9223372036854775808"], [2**63 - 1, -(2**63)]),
        ([b"1", b"9223372036854775808"], [b"1", b"9223372036854775808"]),
        ([b"1.5", b"9223372036854775808"], [b"1.5", b"9223372036854775808"]),
        ([b"1" * 400], [b"1" * 400]),
        # These become numbers only if the config sets a numeric type.
        ([b"true", b"false"], [b"true", b"false"]),
        ([b"2020-01-01", b"2020-01-02"], [b"2020-01-01", b"2020-01-02"]),
    ],
)
def test_type_of_a_column_is_the_narrowest_that_holds_every_field(fields: list[Any], values: list[Any]) -> None:
    np.testing.assert_equal(take(batch(a=fields))["a"], values)
    np.testing.assert_equal(take(batch(a=[b"z", *fields]).slice(1))["a"], values)


@pytest.mark.parametrize(
    ("late", "kind"),
    [(b"1.5", Kind.FLOAT), (b"x", Kind.BYTES), (b"9" * 19, Kind.BYTES), (b"1e3", Kind.FLOAT), (b"07", Kind.BYTES)],
)
def test_late_field_widens_the_type_of_all_blocks(late: bytes, kind: Kind) -> None:
    early, last = batch(a=[b"12", b"3"], b=[b"1", b"1"]), batch(a=[late], b=[b"1"])
    early_first, late_first = ColumnConverter({}, {}, "utf-8"), ColumnConverter({}, {}, "utf-8")
    for block in (early, last, early):
        early_first.convert(block)
    for block in (last, early):
        late_first.convert(block)
    assert early_first.kinds == late_first.kinds == {"a": kind, "b": Kind.INT}
    split_up = [ColumnConverter({}, {}, "utf-8"), ColumnConverter({}, {}, "utf-8")]
    for worker, block in zip(split_up, (early, last), strict=True):
        worker.convert(block)
    assert column_types.merge(worker.kinds for worker in split_up) == early_first.kinds
    assert column_types.merge(worker.kinds for worker in reversed(split_up)) == early_first.kinds


def test_blocks_are_converted_while_the_guessed_kinds_hold() -> None:
    worker = ColumnConverter({}, {"a": Kind.INT, "b": Kind.FLOAT}, "utf-8")
    converted, _ = worker.convert(batch(a=[b"1", None], b=[b"1", b"2"]))
    assert converted is not None
    assert converted.schema.types == [pa.int64(), pa.float32()]
    # The guess was too wide, because the column contains only integers. The blocks will be converted again.
    assert worker.kinds == {"a": Kind.INT, "b": Kind.INT}
    assert worker.convert(batch(a=[b"1.5"], b=[b"1"])) == (None, [])
    assert worker.kinds == {"a": Kind.FLOAT, "b": Kind.INT}
    assert worker.output_kinds == {"a": Kind.INT, "b": Kind.FLOAT}
    assert worker.convert(batch(a=[b"x"], b=[b"2.5"])) == (None, [])
    assert worker.kinds == {"a": Kind.BYTES, "b": Kind.FLOAT}
    # The output must be written again anyway, so later blocks are not converted either.
    assert worker.convert(batch(a=[b"3"], b=[b"2.5"])) == (None, [])


def test_known_kind_of_a_column_is_kept() -> None:
    worker = ColumnConverter({}, {"a": Kind.BYTES}, "utf-8", {"a": Kind.BYTES})
    converted, _ = worker.convert(batch(a=[b"007"]))
    assert converted is not None
    assert converted.to_pydict() == {"a": [b"007"]}
    assert worker.kinds == {"a": Kind.BYTES}


def test_configured_types_are_used() -> None:
    block = batch(zip=[b"01234", None], n=[b"1", None], x=[b"1", None], e=[None, None])
    configured = {"zip": Kind.BYTES, "n": Kind.FLOAT, "e": Kind.INT}
    worker = ColumnConverter(configured, {"x": Kind.INT}, "utf-8")
    converted, invalid = worker.convert(block)
    assert not invalid
    assert converted is not None
    assert converted.schema.types == [pa.binary(), pa.float32(), pa.int64(), pa.int64()]
    assert converted.to_pydict() == {"zip": [b"01234", None], "n": [1.0, None], "x": [1, None], "e": [None, None]}
    assert worker.kinds == {"zip": Kind.BYTES, "n": Kind.FLOAT, "x": Kind.INT, "e": Kind.INT}


@pytest.mark.parametrize("kind", [Kind.INT, Kind.FLOAT])
def test_text_with_an_underscore_is_not_a_configured_number(kind: Kind) -> None:
    converted, (invalid,) = ColumnConverter({"a": kind}, {}, "utf-8").convert(batch(a=[b"1", b"1_11"]))
    assert converted is None
    assert (invalid.row, invalid.column) == (1, "a")
    assert "received '1_11'" in invalid.reason


def test_codes_are_numbers_if_a_numeric_type_is_configured() -> None:
    assert take(batch(a=[b"01", b" 7", b"12", None]), {"a": Kind.INT})["a"] == [1, 7, 12, None]
    assert take(batch(a=[b"01", b" 7", b"1.5"]), {"a": Kind.FLOAT})["a"] == [1.0, 7.0, 1.5]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ([b"3,14", b"-2", None], [float(np.float32(3.14)), -2.0, None]),
        ([b"1.234,5", b"1.234.567,25", b",5", b"7,"], [1234.5, 1234567.25, 0.5, 7.0]),
        ([b"1.234", b"12"], [1234, 12]),
        ([b" 3,5", b"1e3", b"2,5E-1", b"nan"], [3.5, 1000.0, 0.25, None]),
        # The points do not separate thousands, so these are versions or dates rather than numbers.
        ([b"2.5", b"3,5"], [b"2.5", b"3,5"]),
        ([b"1.2345", b"1"], [b"1.2345", b"1"]),
        ([b"31.12.2024"], [b"31.12.2024"]),
        # Columns with other texts are not converted.
        ([b"3,14", b"x,y", b"1.234,5"], [b"3,14", b"x,y", b"1.234,5"]),
        ([b"01234", b"3,5"], [b"01234", b"3,5"]),
        ([b"1,2,3", b"1"], [b"1,2,3", b"1"]),
        ([b"99999999999999999999", b"1"], [b"99999999999999999999", b"1"]),
    ],
)
def test_numbers_with_a_decimal_comma_are_parsed(fields: list[Any], values: list[Any]) -> None:
    np.testing.assert_equal(take(batch(a=fields), decimal=",")["a"], values)
    np.testing.assert_equal(take(batch(a=[b"z", *fields]).slice(1), decimal=",")["a"], values)


def test_configured_numbers_may_have_a_decimal_comma() -> None:
    configured = {"a": Kind.FLOAT}
    assert take(batch(a=[b"1.234,5", b"true", b"007"]), configured, decimal=",")["a"] == [1234.5, 1.0, 7.0]
    worker = ColumnConverter(configured, {}, "utf-8", decimal=",")
    assert worker.convert(batch(a=[b"3,5", b"2.5"])) == (
        None,
        [InvalidValue(1, "a", "expected a float, received '2.5'")],
    )


def test_booleans_are_numbers_if_a_numeric_type_is_configured() -> None:
    words = [b"true", b"FALSE", b"1", None, b"True"]
    assert take(batch(a=words), {"a": Kind.INT})["a"] == [1, 0, 1, None, 1]
    assert take(batch(a=words), {"a": Kind.FLOAT})["a"] == [1.0, 0.0, 1.0, None, 1.0]
    assert take(batch(a=words))["a"] == words


@pytest.mark.parametrize(
    ("kind", "field", "reason"),
    [
        (Kind.INT, b"1.5", "expected an int64, received '1.5'"),
        (Kind.INT, b"9" * 19, f"expected an int64, received '{'9' * 19}'"),
        (Kind.INT, b"0x1F", "expected an int64, received '0x1F'"),
        (Kind.INT, b"yes", "expected an int64, received 'yes'"),
        (Kind.FLOAT, b"1,5", "expected a float, received '1,5'"),
        (Kind.FLOAT, b"x" * 60, f"expected a float, received '{'x' * 40}...'"),
        (Kind.FLOAT, b"\xe9", "expected a float, received '\\xe9'"),
        (Kind.BYTES, b"\xe9", "expected utf-8 text, received '\\xe9'"),
    ],
)
def test_fields_that_do_not_fit_a_configured_type_are_named(kind: Kind, field: bytes, reason: str) -> None:
    worker = ColumnConverter({"a": kind}, {}, "utf-8")
    assert worker.convert(batch(a=[b"1", None, field, b"2"], b=[b"1.5"] * 4)) == (None, [InvalidValue(2, "a", reason)])
    # The kinds of other columns are not updated until the invalid rows are removed.
    assert worker.kinds == {}


def test_text_that_cannot_be_decoded_is_reported_with_its_column() -> None:
    block = batch(a=[b"1", b"2", b"\xff"], b=[b"x\xe9", b"y", "é".encode()])
    for encoding in ("utf-8", "cp1252"):
        assert ColumnConverter({}, {}, encoding).convert(block)[1] == [
            InvalidValue(2, "a", f"expected {encoding} text, received '\\xff'"),
            InvalidValue(0, "b", f"expected {encoding} text, received 'x\\xe9'"),
        ]


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        *((pa.array([1, None, 100], type_), [1, None, 100]) for type_ in INTEGERS),
        (pa.array([2**63 - 1, 0], pa.uint64()), [2**63 - 1, 0]),
        (pa.array([True, None, False]), [1, None, 0]),
        (pa.array([np.float16(1.5), None], pa.float16()), [1.5, None]),
        (pa.array([1.5, None], pa.float32()), [1.5, None]),
        (pa.array([0.1, None, 1e300, math.nan]), [float(np.float32(0.1)), None, None, None]),
        (pa.array([decimal.Decimal("1.25"), None]), [1.25, None]),
        (pa.array([decimal.Decimal("1.25"), None], pa.decimal256(60, 2)), [1.25, None]),
        (pa.array(["é", None]), ["é".encode(), None]),
        (pa.array(["é", None], pa.large_string()), ["é".encode(), None]),
        (pa.array([b"\xff", None], pa.binary()), [b"\xff", None]),
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([b"\xff\0", None], pa.binary(2)), [b"\xff\0", None]),
        (pa.array(["x", None, "y", "x"]).dictionary_encode(), [b"x", None, b"y", b"x"]),
        (pa.array([7, None, 7]).dictionary_encode(), [7, None, 7]),
        (pa.array([datetime.date(2020, 2, 29), None]), [b"2020-02-29", None]),
        (pa.array([datetime.time(1, 2, 3), None], pa.time32("s")), [b"01:02:03", None]),
        (pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5), None], pa.timestamp("s")), [b"2020-01-02 03:04:05", None]),
        (
            pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5, 600)], pa.timestamp("ns")),
            [b"2020-01-02 03:04:05.000600000"],
        ),
        (
            pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5)], pa.timestamp("us", "+05:00")),
            [b"2020-01-02 03:04:05.000000Z"],
        ),
        (pa.array([datetime.timedelta(seconds=2)], pa.duration("ms")), [b"2000"]),
        (pa.nulls(2), [None, None]),
        (pa.nulls(2, pa.string()), [None, None]),
        (pa.array([[1, 2], None, [], [3]], pa.list_(pa.int8())), [[1, 2], None, [], [3]]),
        (pa.array([["x"], None, []], pa.large_list(pa.string())), [[b"x"], None, []]),
        (pa.array([[1.5, 2], None], pa.list_(pa.float64(), 2)), [[1.5, 2.0], None]),
        (pa.array([[], None], pa.list_(pa.int8())), [[], None]),
        (pa.array([[], None]), [[], None]),
    ],
)
def test_typed_values_are_stored_as_int64_float32_or_bytes(array: pa.Array, values: list[Any]) -> None:
    np.testing.assert_equal(take(batch(a=array), encoding=None)["a"], values)
    np.testing.assert_equal(take(batch(a=array).slice(1), encoding=None)["a"], values[1:])


def test_integers_beyond_int64_are_invalid() -> None:
    message = "expected an int64, received 18446744073709551615"
    for array in (
        pa.array([1, None, 2**64 - 1], pa.uint64()),
        pa.array([[1], [2, 3], [4, 2**64 - 1]], pa.list_(pa.uint64())),
    ):
        assert ColumnConverter({}, {}, None).convert(batch(a=array)) == (None, [InvalidValue(2, "a", message)])


def test_lists_with_missing_values_inside_are_invalid() -> None:
    block = batch(a=pa.array([[1], None, [2, None, None], [], [None]]))
    message = "expected a list of values, received a missing value, NaN or infinity inside"
    for configured in ({}, {"a": Kind.INT}, {"a": Kind.BYTES}):
        worker = ColumnConverter(configured, {}, None)
        assert worker.convert(block) == (None, [InvalidValue(2, "a", message), InvalidValue(4, "a", message)])


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_typed_text_that_is_not_utf_8_is_invalid(type_: pa.DataType) -> None:
    # A view skips the validation of UTF-8, as writers of files may do.
    array = pa.array([b"x", b"\xff"], pa.binary() if type_ == pa.string() else pa.large_binary()).view(type_)
    assert ColumnConverter({}, {}, None).convert(batch(a=array)) == (
        None,
        [InvalidValue(1, "a", "expected UTF-8 text, received '\\xff'")],
    )


def test_typed_columns_widen_from_file_to_file() -> None:
    full, broken, words = (pa.array(values) for values in ([1, 2], [1.5], ["x"]))
    worker = ColumnConverter({}, {"a": Kind.FLOAT}, None)
    converted, _ = worker.convert(batch(a=full))
    assert converted is not None
    assert converted.column(0).equals(pa.array([1.0, 2.0], pa.float32()))
    assert worker.kinds == {"a": Kind.INT}
    assert worker.convert(batch(a=words)) == (None, [])
    assert worker.kinds == {"a": Kind.BYTES}
    worker = ColumnConverter({}, {"a": Kind.BYTES}, None)
    assert [worker.convert(batch(a=column))[0].to_pydict() for column in (full, broken, words)] == [
        {"a": [b"1", b"2"]}, {"a": [b"1.5"]}, {"a": [b"x"]}
    ]  # fmt: skip
    worker = ColumnConverter({}, {"a": Kind.FLOAT}, None)
    assert worker.convert(batch(a=pa.array([2**60])))[0].to_pydict() == {"a": [float(2**60)]}
    # Without a guess, the first block with a value determines the kind.
    worker = ColumnConverter({}, {}, None)
    for array in (pa.nulls(2), full):
        assert worker.convert(batch(a=array))[0] is not None
    assert worker.convert(batch(a=broken)) == (None, [])


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, None]), Kind.BYTES, [b"1", None]),
        (pa.array([1, None]), Kind.FLOAT, [1.0, None]),
        (pa.array([True, None]), Kind.BYTES, [b"true", None]),
        (pa.array([True, None]), Kind.INT, [1, None]),
        (pa.array([1.7e12 + 1, None, math.nan, 2.0**60]), Kind.INT, [1_700_000_000_001, None, None, 2**60]),
        (pa.array(["1", None]), Kind.INT, [1, None]),
        (pa.array(["true", None]), Kind.INT, [1, None]),
        (pa.array([decimal.Decimal("2.00"), None]), Kind.INT, [2, None]),
        (pa.array([np.float16(1.5), None], pa.float16()), Kind.BYTES, [b"1.5", None]),
        (pa.array([[1], None]), Kind.FLOAT, [[1.0], None]),
        (pa.array([[1], None]), Kind.BYTES, [[b"1"], None]),
    ],
)
def test_configured_types_apply_to_typed_columns(array: pa.Array, kind: Kind, values: list[Any]) -> None:
    assert take(batch(a=array), {"a": kind}, None)["a"] == values


def test_lists_of_a_type_other_than_configured_are_rejected() -> None:
    with pytest.raises(InputError) as raised:
        ColumnConverter({"a": Kind.INT}, {}, None).convert(batch(a=pa.array([["x"]])))
    assert raised.value.headline == (
        "data.types: the column a contains lists of another type: expected an int64 as value, "
        "received list<item: string>"
    )


@pytest.mark.parametrize(
    ("type_", "nested"),
    [
        (pa.int64(), False),
        (pa.dictionary(pa.int8(), pa.string()), False),
        (pa.list_(pa.string()), False),
        (pa.large_list(pa.string()), False),
        (pa.list_(pa.string(), 3), False),
        (pa.list_(pa.list_(pa.int8())), True),
        (pa.list_(pa.struct([("x", pa.int8())])), True),
        (pa.struct([("x", pa.int8())]), True),
        (pa.map_(pa.string(), pa.int8()), True),
    ],
)
def test_nested_types_are_recognized(type_: pa.DataType, nested: bool) -> None:
    assert arrow_columns.is_nested(type_) == nested


def _value(text: str) -> object:
    """Parse a field by Python's rules. Codes and texts with underscores are returned unchanged."""
    if re.fullmatch(rb"\s*(0[0-9]+|\+[0-9]{7,})\s*", text.encode()) or "_" in text:
        return text
    for parse in (int, float):
        try:
            value = parse(text)
        except ValueError:
            continue
        return value if parse is float or -(2**63) <= value < 2**63 else text
    return text


def _column(fields: Sequence[str | None]) -> list[object]:
    """Return the expected values of a column: all fields are texts, floats or integers."""
    values = [field and _value(field) for field in fields]
    if any(isinstance(value, str) for value in values):
        return [field and field.encode() for field in fields]
    if any(isinstance(value, float) for value in values):
        with np.errstate(over="ignore"):
            numbers = [field and np.float32(float(field)) for field in fields]
        # NaN and infinity are missing, and -0.0 is 0.0.
        return [None if number is None or not np.isfinite(number) else float(number) + 0.0 for number in numbers]
    return values


# Mix arbitrary text with many texts that look like numbers.
_text = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)
_numbers = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats(width=32).map(str),
    st.floats().map(repr),
    st.sampled_from(
        [
            "+1",
            " 2",
            "3 ",
            "1_0",
            "0x1F",
            "1e5",
            "nan",
            "-inf",
            "1e999",
            "٣",
            "007",
            " 00",
            "+4930123456",
            "-0",
            "-07",
            "-0.0",
            "1.",
        ]
    ),
)
_fields = st.sampled_from([st.one_of(_numbers, _text), _numbers, st.integers(-99, 99).map(str)]).flatmap(
    lambda fields: st.lists(st.one_of(st.none(), fields), min_size=1, max_size=12)
)


@settings(max_examples=150, deadline=None)
@given(_fields, st.integers(0, 12), st.sampled_from(Kind))
def test_any_column_is_read_as_by_python(fields: list[str | None], cut: int, guess: Kind) -> None:
    block = batch(a=[field and field.encode() for field in fields])
    np.testing.assert_equal(take(block)["a"], _column(fields))
    # The result must be the same in two blocks and with any guess, unless the blocks must be converted again.
    worker = ColumnConverter({}, {"a": guess}, "utf-8")
    parts = [part for part in (block.slice(0, cut), block.slice(cut)) if part.num_rows]
    converted = [worker.convert(part)[0] for part in parts]
    full = ColumnConverter({}, {}, "utf-8")
    full.convert(block)
    assert worker.kinds == full.kinds
    if guess in (Kind.MISSING, worker.kinds["a"]) and None not in converted:
        np.testing.assert_equal(
            [value for part_of_column in converted for value in part_of_column.column(0).to_pylist()], _column(fields)
        )
    else:
        assert guess is not worker.kinds["a"]
