"""Infers the type of each column over all rows of the input, and converts its values to the types of tf.Examples.

The type of text (CSV) follows from its values: a value is an integer or a float if Python's `int` or `float` accepts
it, as in TFX's CsvExampleGen; unlike there, an integer with leading zeros or with the plus of a telephone number is a
code, and stays text, as does a text with an underscore. Common spellings are parsed by column, unusual ones one by one.
Typed values (Parquet, BigQuery) keep their type, in the widest form that a tf.Example has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.base.errors import InputError
from components.data.missing import nan_to_null
from components.ingest.blocks import ReaderProperties
from components.ingest.config import ValueType
from components.ingest.number_texts import parse_number, with_point

_INT64 = range(-(2**63), 2**63)
_CODE = r"^\s*(?:0[0-9]+|\+[0-9]{7,})\s*$"
"""A zip code such as 01234, or a telephone number such as +4930123456: a number would lose its first character."""
_IS_CODE = re.compile(_CODE.encode())


class Kind(IntEnum):
    """The type of a column; each kind can hold every value of the kinds before it."""

    MISSING = 0
    INT = 1
    FLOAT = 2
    BYTES = 3


KINDS: dict[ValueType, Kind] = {"int": Kind.INT, "float": Kind.FLOAT, "bytes": Kind.BYTES}
_ARROW = {Kind.MISSING: pa.null(), Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.binary()}
_EXPECTED = {Kind.INT: "an int64", Kind.FLOAT: "a float", Kind.BYTES: "UTF-8 text"}


@dataclass(frozen=True)
class InvalidValue:
    """A value that does not fit the type of its column.

    Attributes:
      row: Its index in the block.
      column: The name of the column.
      reason: What was expected, and what was received.
    """

    row: int
    column: str
    reason: str


class ColumnConverter:
    """Converts the blocks of one worker, and infers the kinds of their columns.

    Args:
      configured: Kinds that the config sets; a value that does not fit is invalid.
      guess: Kinds to convert other columns to, as far as there is a guess.
      encoding: The encoding of the text that the values were read from; None if they are typed.
      minimum: The least kinds of columns, from earlier blocks.
      decimal: The decimal sign of numbers in text, a point or a comma.
      files: Columns with encoded files, whose bytes are no text.
    """

    def __init__(
        self,
        configured: Mapping[str, Kind],
        guess: Mapping[str, Kind],
        encoding: str | None,
        minimum: Mapping[str, Kind] | None = None,
        decimal: str = ".",
        files: Collection[str] = (),
    ) -> None:
        self._configured, self._encoding, self._decimal = dict(configured), encoding, decimal
        self._files = files
        self.output_kinds = {**guess, **configured, **dict.fromkeys(files, Kind.BYTES)}
        """The kinds that blocks are converted to."""
        self.kinds = dict(minimum or {})
        """The least kinds that hold all values so far."""

    def convert(self, block: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[InvalidValue]]:
        """Convert a block, or report its invalid values.

        Args:
          block: Columns of text (binary, null where missing), or typed columns.

        Returns:
          Columns of int64, float32, binary or null, or lists of them; None if there are invalid values, or if the kind
          of a column differs from its guess. And the invalid values.

        Raises:
          InputError: A configured column holds lists of another type.
        """
        arrays: list[pa.Array | None] = []
        invalid: list[InvalidValue] = []
        kinds = dict(self.kinds)
        for name, column in zip(block.schema.names, block.columns, strict=True):
            column = nan_to_null(_decoded(column))
            before = kinds.get(name, Kind.MISSING)
            if name in self._files:
                kind, array, bad = _convert_typed(column, Kind.BYTES)
            elif name in self._configured:
                kind, array, bad = _convert_configured(name, column, self._configured[name], self._decimal)
            elif self._encoding:
                guess = self.output_kinds.setdefault(name, Kind.BYTES)
                kind, array, bad = _convert_text(column, before, guess, self._decimal)
            else:
                kind, array, bad = _convert_typed(column, self.output_kinds.get(name))
                if kind is not Kind.MISSING:
                    self.output_kinds.setdefault(name, kind)
            kinds[name] = max(before, kind)
            # Text is only known to be NaN when it has been parsed.
            arrays.append(None if array is None else nan_to_null(array))
            invalid += [InvalidValue(row, name, self._with_encoding(reason)) for row, reason in bad]
        if invalid:
            return None, invalid
        self.kinds = kinds
        if any(array is None for array in arrays):
            return None, []
        return pa.RecordBatch.from_arrays(arrays, block.schema.names), []

    def _with_encoding(self, reason: str) -> str:
        """Names the configured encoding in the reason for text that cannot be decoded."""
        return reason.replace(_EXPECTED[Kind.BYTES], f"{self._encoding or 'UTF-8'} text", 1)


def oversized(block: pa.RecordBatch, most: int, ignored: Collection[str] = ()) -> list[InvalidValue]:
    """Return the values of text and bytes with more than `most` bytes, but for the ignored columns."""
    found = []
    for name, column in zip(block.schema.names, block.columns, strict=True):
        # The size of all values is known without a look at them.
        if name in ignored or column.nbytes <= most or not _is_text(column.type):
            continue
        lengths = np.asarray(pc.binary_length(column).fill_null(0))
        for row in np.flatnonzero(lengths > most):
            reason = f"expected a value of at most {most:,} bytes, received {lengths[row]:,}"
            found.append(InvalidValue(int(row), name, reason))
    return found


def _is_text(type_: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(type_) for test in tests)


def as_kinds(
    columns: pa.RecordBatch, kinds: Mapping[str, Kind], properties: ReaderProperties
) -> tuple[pa.RecordBatch | None, dict[int, tuple[str, str]]]:
    """Convert columns to given kinds.

    Args:
      columns: As a reader yields them.
      kinds: Name → kind of each column.
      properties: Of the reader.

    Returns:
      The columns, or None if a value does not fit. And the rows with such a value: index → column, and what was
      expected and received.
    """
    if not properties.encoding:
        # Typed values are cast; only if one would change, the values are converted by their text.
        converted, _ = ColumnConverter({}, kinds, None).convert(columns)
        if converted is not None:
            return converted, {}
    converter = ColumnConverter(kinds, {}, properties.encoding, decimal=properties.decimal, files=properties.files)
    converted, invalid = converter.convert(columns)
    return converted, {value.row: (value.column, value.reason) for value in reversed(invalid)}


def merge(kinds: Iterable[Mapping[str, Kind]]) -> dict[str, Kind]:
    """Return the least kinds that hold the values of all."""
    merged: dict[str, Kind] = {}
    for one in kinds:
        for name, kind in one.items():
            merged[name] = max(kind, merged.get(name, kind))
    return merged


def all_missing(column: pa.Array) -> bool:
    """Whether a column has no value at all."""
    return bool(column.null_count == len(column))


_Converted = tuple[Kind, "pa.Array | None", list[tuple[int, str]]]
"""The least kind of a column, its converted values (None if the kind differs from the guess), and the row and reason of
each invalid value."""


def _convert_text(column: pa.Array, before: Kind, guess: Kind, decimal: str) -> _Converted:
    """Convert a block of a column of text; `before` is the kind of the blocks before it."""
    if all_missing(column):
        return before, pa.nulls(len(column)), []
    numeric = with_point(column) if decimal == "," else column
    if guess in (Kind.INT, Kind.FLOAT) and before <= guess:
        values = _cast(numeric, guess)
        fits = guess is Kind.INT or (values is not None and _are_floats(values, before))
        if values is not None and fits and not _has_codes(numeric):
            return guess, values, []
    if bad := _undecodable(column):
        return before, None, bad
    kind = _kind_of(numeric, before)
    return kind, parse(column if guess is Kind.BYTES else numeric, guess) if kind <= guess else None, []


def _convert_configured(name: str, column: pa.Array, kind: Kind, decimal: str) -> _Converted:
    """Convert a column whose kind the config sets."""
    if is_list(column.type):
        item_kind, array, bad = _convert_typed(column, kind)
        if item_kind > kind:
            raise InputError(
                f"data.types: the column {name} holds lists of another type: expected {_EXPECTED[kind]} as value, "
                f"received {column.type}",
                "remove the column from data.types",
            )
        return kind, array, bad
    if kind is Kind.INT and pa.types.is_floating(column.type) and (values := _whole(_double(column))) is not None:
        return kind, values, []
    if not pa.types.is_binary(column.type):
        column = _text(_decoded(column))
    if kind is Kind.BYTES:
        bad = _undecodable(column)
        return kind, column, bad
    numeric = with_point(column) if decimal == "," else column
    if (values := _cast(numeric, kind)) is not None:
        return kind, values, []
    texts = numeric.to_pylist()
    valid = [text is None or text.lower() in _BOOLEANS or _kind_of_number(text) <= kind for text in texts]
    if not all(valid):
        expected = f"expected {_EXPECTED[kind]}, received"
        return (
            kind,
            None,
            [(row, f"{expected} {quoted(column[row].as_py())}") for row, is_valid in enumerate(valid) if not is_valid],
        )
    return kind, parse(numeric, kind), []


def _convert_typed(column: pa.Array, guess: Kind | None) -> _Converted:
    """Convert a typed column to the widest type of its sort that a tf.Example has, or to the guessed kind."""
    column = _decoded(column)
    if is_list(column.type):
        if all_missing(column):
            return Kind.MISSING, pa.nulls(len(column)), []
        kind, values, bad = _convert_typed(column.flatten(), guess)
        if bad or values is None:
            rows = np.repeat(np.arange(len(column)), np.asarray(pc.list_value_length(column).fill_null(0)))
            return kind, None, [(int(rows[at]), reason) for at, reason in bad]
        if values.null_count:
            rows = np.repeat(np.arange(len(column)), np.asarray(pc.list_value_length(column).fill_null(0)))
            empty = sorted(set(rows[np.asarray(values.is_null())].tolist()))
            reason = "expected a list of values, received a missing value, NaN or infinity inside"
            return kind, None, [(row, reason) for row in empty]
        if pa.types.is_null(values.type):
            values = pa.nulls(0, pa.binary())
        return kind, _relisted(column, values), []
    kind, array = Kind.MISSING, column
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        kind = Kind.INT
        if pa.types.is_uint64(column.type):
            large = np.asarray(column.fill_null(0)) > np.uint64(2**63 - 1)
            if large.any():
                expected = "expected an int64, received"
                return kind, None, [(int(row), f"{expected} {column[int(row)]}") for row in np.flatnonzero(large)]
        array = column.cast(pa.int64())
    elif pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        kind, array = Kind.FLOAT, _single(_double(column))
    elif not pa.types.is_null(column.type):
        kind, array = Kind.BYTES, _text(column)
        if (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) and (bad := _undecodable(array)):
            return kind, None, bad
    if all_missing(array):
        # Lists without values have a type as well, which must be the same in all blocks.
        return Kind.MISSING, array if guess is None else pa.nulls(len(array), _ARROW[guess]), []
    if guess is None or kind == guess:
        return kind, array, []
    if kind > guess:
        return kind, None, []
    return kind, _single(array.cast(pa.float64(), safe=False)) if guess is Kind.FLOAT else _text(array), []


def is_nested(type_: pa.DataType) -> bool:
    """Whether a tf.Example cannot hold values of a type: structs, maps, lists of lists."""
    if is_list(type_):
        return is_list(type_.value_type) or is_nested(type_.value_type)
    return bool(pa.types.is_nested(type_) or pa.types.is_map(type_))


def is_list(type_: pa.DataType) -> bool:
    """Whether the values of a type are lists of any form: variable, large or of fixed size."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _relisted(column: pa.Array, values: pa.Array) -> pa.Array:
    """Return the lists of a column with other values inside."""
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
    mask = np.append(np.asarray(column.is_null()), False) if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends, mask=mask), values)


def _text(column: pa.Array) -> pa.Array:
    """Return a column as UTF-8 text (binary): dates and times in ISO 8601, numbers in their shortest form."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_float16(column.type) or pa.types.is_decimal(column.type):
        column = _double(column)
    elif pa.types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column.cast(pa.string()).cast(pa.binary())


def quoted(value: bytes) -> str:
    """Return a value for an error message: in quotes, cut after 40 bytes, with bytes that are not UTF-8 escaped."""
    short = value if len(value) <= 40 else value[:40] + b"..."
    return f"'{short.decode(errors='backslashreplace')}'"


def parse(column: pa.Array, kind: Kind) -> pa.Array:
    """Convert text (binary, null where missing) to values of a kind.

    Raises:
      ValueError: A text is not a value of the kind.
    """
    if kind is Kind.BYTES:
        return column
    if all_missing(column):
        return pa.nulls(len(column))
    values = _cast(column, kind)
    return _parse_distinct(column, kind) if values is None else values


def _cast(column: pa.Array, kind: Kind) -> pa.Array | None:
    """Parse text as numbers with Arrow; None if one is not a number, or Python parses it differently."""
    try:
        values = column.cast(pa.int64() if kind is Kind.INT else pa.float64())
    except pa.ArrowInvalid:
        return None
    if kind is Kind.INT:
        return None if _has_letters(column) else values
    return _single(values)


def _double(column: pa.Array) -> pa.Array:
    """Convert floats and decimals to float64."""
    if pa.types.is_float16(column.type):
        # Arrow cannot cast half precision.
        return pa.array(np.asarray(column, np.float64), mask=np.asarray(column.is_null()))
    return column.cast(pa.float64())


def _whole(doubles: pa.Array) -> pa.Array | None:
    """Convert float64 to int64; None if a value is no integer."""
    try:
        return doubles.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _single(values: pa.Array) -> pa.Array:
    """Convert float64 to float32, the floating type of a tf.Example; values beyond its range become infinite."""
    return values.cast(pa.float32())


def _has_letters(column: pa.Array) -> bool:
    """Whether a column of integers has hexadecimal ones: Arrow parses 0x1F as 31, Python's `int` refuses it."""
    offsets, data = _offsets_and_bytes(column)
    data = data[offsets[0] : offsets[-1]]
    return bool(data.size and data.max() > ord("9"))


def _has_codes(column: pa.Array) -> bool:
    """Whether a column has a code: see _CODE."""
    offsets, data = _offsets_and_bytes(column)
    if not data.size:
        return False
    # The start of an empty text may be the end of all bytes.
    first = data.take(offsets[:-1], mode="clip")
    rows = np.flatnonzero((first == ord("0")) | (first == ord("+")))
    second = data.take(offsets[rows] + 1, mode="clip")
    rows = rows[(second >= ord("0")) & (second <= ord("9"))]
    return bool(rows.size and pc.any(pc.match_substring_regex(column.take(pa.array(rows)), _CODE)).as_py())


def _offsets_and_bytes(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return where each text of a binary column begins, and where the last one ends; and the bytes of all."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(column.buffers()[2] or b"", np.uint8)


_BOOLEANS = {b"true": 1, b"false": 0}
"""Words that are numbers in columns that the config sets to numbers."""


def _parse_distinct(column: pa.Array, kind: Kind) -> pa.Array:
    """As `parse`, by Python's rules, one distinct value at a time: " 7", "+7"."""
    coded = column.dictionary_encode()
    number: Callable[[str], float] = int if kind is Kind.INT else float
    texts = coded.dictionary.to_pylist()
    values = [_BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else parse_number(text, number) for text in texts]
    if kind is Kind.INT and not all(value in _INT64 for value in values):
        raise ValueError("out of the range of int64")
    distinct = pa.array(values, pa.int64() if kind is Kind.INT else pa.float64())
    return (distinct if kind is Kind.INT else _single(distinct)).take(coded.indices)


def _kind_of_value(text: bytes) -> Kind:
    """Return the kind of one field that is not missing."""
    return Kind.BYTES if _IS_CODE.match(text) else _kind_of_number(text)


def _kind_of_number(text: bytes) -> Kind:
    """Return the kind of one field that is not missing, by Python's rules: 007 is the integer 7."""
    try:
        # An integer beyond int64 is an identifier rather than a quantity: as float it would lose its last digits.
        return Kind.INT if parse_number(text, int) in _INT64 else Kind.BYTES
    except ValueError:
        pass
    try:
        parse_number(text)
    except ValueError:
        return Kind.BYTES
    return Kind.FLOAT


def _kind_of(column: pa.Array, before: Kind) -> Kind:
    """Return the least kind that holds a block of a column and the blocks before it."""
    if before is Kind.BYTES or all_missing(column):
        return before
    if _has_codes(column):
        return Kind.BYTES
    if before is not Kind.FLOAT and _try_cast(column, pa.int64()) is not None and not _has_letters(column):
        return Kind.INT
    if (floats := _try_cast(column, pa.float64())) is not None:
        ambiguous = _is_ambiguous(floats)
        if before is Kind.FLOAT or (_without_null(floats)[~ambiguous] % 1 != 0).any():
            before, column = Kind.FLOAT, column.filter(pa.array(ambiguous))
    kind = before
    for text in column.drop_null().unique().to_pylist():
        kind = max(kind, _kind_of_value(text))
        if kind is Kind.BYTES:
            break
    return kind


def _are_floats(values: pa.Array, before: Kind) -> bool:
    """Return whether `_kind_of` certainly finds floats; a float32 with a fraction was parsed from a number with one."""
    if _is_ambiguous(values).any():
        return False
    return before is Kind.FLOAT or bool((_without_null(values) % 1 != 0).any())


def _is_ambiguous(floats: pa.Array) -> npt.NDArray[np.bool_]:
    """Mark NaN, infinity, and what may be an integer beyond int64: Arrow and Python may parse these differently."""
    return ~(np.abs(_without_null(floats)) < 2.0**63)


def _without_null(floats: pa.Array) -> npt.NDArray[np.floating[Any]]:
    """Return the values of a column, 0 where one is missing; without a null it is not copied."""
    return np.asarray(floats.fill_null(0.0) if floats.null_count else floats)


def _try_cast(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        return None


def _undecodable(column: pa.Array) -> list[tuple[int, str]]:
    """Return the rows whose text is not UTF-8, with the reason."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        expected = f"expected {_EXPECTED[Kind.BYTES]}, received"
        texts = enumerate(column.to_pylist())
        return [(row, f"{expected} {quoted(text)}") for row, text in texts if text is not None and not _is_utf_8(text)]
    return []


def _is_utf_8(text: bytes) -> bool:
    return text.decode(errors="replace").encode() == text
