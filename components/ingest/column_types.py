"""Infer the type of every column from all rows of the input, and convert its values to the types of tf.Examples.

The type of text (CSV) follows from the values. As in TFX's CsvExampleGen, a value is an integer or a float if Python's
`int` or `float` accepts it. Unlike there, an integer with leading zeros or with the plus of a telephone number is a
code and stays text, and so does a text with an underscore. Arrow parses the common spellings of a whole column; unusual
spellings are parsed one by one. Typed values (Parquet, BigQuery) are cast to the widest type of tf.Examples of the same
sort.
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
from components.data.arrow_columns import (
    all_missing,
    decode_dictionary,
    is_list,
    is_text,
    replace_values,
    to_float32,
    to_float64,
    to_int64,
    to_text,
)
from components.data.missing import nan_to_null
from components.ingest.blocks import ReaderProperties
from components.ingest.config import ValueType
from components.ingest.number_texts import parse_number, with_point

_INT64 = range(-(2**63), 2**63)
_CODE = r"^\s*(?:0[0-9]+|\+[0-9]{7,})\s*$"
"""Matches a zip code such as 01234, or a telephone number such as +4930123456. As a number it would lose its first
character."""
_IS_CODE = re.compile(_CODE.encode())


class Kind(IntEnum):
    """The type of a column. A kind can represent every value of the smaller kinds."""

    MISSING = 0
    INT = 1
    FLOAT = 2
    BYTES = 3


KINDS: dict[ValueType, Kind] = {"int": Kind.INT, "float": Kind.FLOAT, "bytes": Kind.BYTES}
ARROW_TYPES = {Kind.MISSING: pa.null(), Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.binary()}
_EXPECTED = {Kind.INT: "an int64", Kind.FLOAT: "a float", Kind.BYTES: "UTF-8 text"}


@dataclass(frozen=True)
class InvalidValue:
    """A value that does not fit the type of its column.

    Attributes:
      row: Index of the row in the block.
      column: Name of the column.
      reason: What was expected and what was received.
    """

    row: int
    column: str
    reason: str


class ColumnConverter:
    """Converts the blocks of one worker, and infers the kinds of their columns.

    Args:
      configured: Column name → kind that the config sets. A value that does not fit is invalid.
      guess: Column name → kind to convert a column to that the config does not mention. It may lack columns.
      encoding: Encoding of the text that the values were read from. None if the values are typed.
      minimum: Column name → smallest kind that earlier blocks need.
      decimal: Decimal sign of numbers in text, a point or a comma.
      files: Columns of encoded files, whose bytes are not text.
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
        """Column name → kind that blocks are converted to."""
        self.kinds = dict(minimum or {})
        """Column name → smallest kind that can represent all values so far."""

    def convert(self, block: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[InvalidValue]]:
        """Convert a block, or report its invalid values.

        Args:
          block: Columns of text (binary, null where missing), or typed columns.

        Returns:
          Columns of int64, float32, binary or null, or of lists of these, and the invalid values. The columns are None
          if there are invalid values, or if the kind of a column differs from its guess.

        Raises:
          InputError: If a configured column contains lists of another type.
        """
        arrays: list[pa.Array | None] = []
        invalid: list[InvalidValue] = []
        kinds = dict(self.kinds)
        for name, column in zip(block.schema.names, block.columns, strict=True):
            column = nan_to_null(decode_dictionary(column))
            before = kinds.get(name, Kind.MISSING)
            if name in self._files:
                kind, array, bad = _convert_typed(column, Kind.BYTES)
            elif name in self._configured:
                kind, array, bad = _convert_configured(name, column, self._configured[name], self._decimal)
            elif self._encoding and not _is_number(column.type):
                guess = self.output_kinds.setdefault(name, Kind.BYTES)
                kind, array, bad = _convert_text(column, before, guess, self._decimal)
            else:
                kind, array, bad = _convert_typed(column, self.output_kinds.get(name))
                if kind is not Kind.MISSING:
                    self.output_kinds.setdefault(name, kind)
            kinds[name] = max(before, kind)
            # A text such as "nan" only becomes NaN when it is parsed.
            arrays.append(None if array is None else nan_to_null(array))
            invalid += [InvalidValue(row, name, self._name_encoding(reason)) for row, reason in bad]
        if invalid:
            return None, invalid
        self.kinds = kinds
        if any(array is None for array in arrays):
            return None, []
        return pa.RecordBatch.from_arrays(arrays, block.schema.names), []

    def _name_encoding(self, reason: str) -> str:
        """Replace UTF-8 by the configured encoding in the reason for text that cannot be decoded."""
        return reason.replace(_EXPECTED[Kind.BYTES], f"{self._encoding or 'UTF-8'} text", 1)


def find_oversized(block: pa.RecordBatch, most: int, ignored: Collection[str] = ()) -> list[InvalidValue]:
    """Return the values of text and bytes with more than `most` bytes, except in the ignored columns."""
    oversized = []
    for name, column in zip(block.schema.names, block.columns, strict=True):
        # The total size bounds the size of every value and is known without reading the values.
        if name in ignored or column.nbytes <= most or not is_text(column.type):
            continue
        lengths = np.asarray(pc.binary_length(column).fill_null(0))
        for row in np.flatnonzero(lengths > most):
            reason = f"expected a value of at most {most:,} bytes, received {lengths[row]:,}"
            oversized.append(InvalidValue(int(row), name, reason))
    return oversized


def as_kinds(
    columns: pa.RecordBatch, kinds: Mapping[str, Kind], properties: ReaderProperties
) -> tuple[pa.RecordBatch | None, dict[int, tuple[str, str]]]:
    """Convert columns to given kinds.

    Args:
      columns: Columns as a reader yields them.
      kinds: Column name → kind.
      properties: Properties of the reader.

    Returns:
      The converted columns, or None if a value does not fit; and the rows with such a value, as index → name of the
      column, and what was expected and received.
    """
    if not properties.encoding:
        # Try to cast typed values. If a value would change, convert the values from their text instead.
        converted, _ = ColumnConverter({}, kinds, None).convert(columns)
        if converted is not None:
            return converted, {}
    converter = ColumnConverter(kinds, {}, properties.encoding, decimal=properties.decimal, files=properties.files)
    converted, invalid = converter.convert(columns)
    return converted, {value.row: (value.column, value.reason) for value in reversed(invalid)}


def merge(kinds: Iterable[Mapping[str, Kind]]) -> dict[str, Kind]:
    """Return column name → smallest kind that can represent the values of all parts."""
    merged: dict[str, Kind] = {}
    for kinds_of_part in kinds:
        for name, kind in kinds_of_part.items():
            merged[name] = max(kind, merged.get(name, kind))
    return merged


_Converted = tuple[Kind, "pa.Array | None", list[tuple[int, str]]]
"""The smallest kind of a column, its converted values (None if the kind differs from the guess), and the invalid
values, as (row, reason)."""


def _convert_text(column: pa.Array, before: Kind, guess: Kind, decimal: str) -> _Converted:
    """Convert a block of a column of text; `before` is the kind that earlier blocks need."""
    if all_missing(column):
        return before, pa.nulls(len(column)), []
    numeric = with_point(column) if decimal == "," else column
    if guess in (Kind.INT, Kind.FLOAT) and before <= guess:
        values = _cast(numeric, guess)
        fits = guess is Kind.INT or (values is not None and _are_floats(values, before))
        if values is not None and fits and not _has_codes(numeric):
            return guess, values, []
    if bad := _find_undecodable(column):
        return before, None, bad
    kind = _infer_kind(numeric, before)
    return kind, parse(column if guess is Kind.BYTES else numeric, guess) if kind <= guess else None, []


def _convert_configured(name: str, column: pa.Array, kind: Kind, decimal: str) -> _Converted:
    """Convert a block of a column whose kind the config sets."""
    if is_list(column.type):
        item_kind, array, bad = _convert_typed(column, kind)
        if item_kind > kind:
            raise InputError(
                f"data.types: the column {name} contains lists of another type: expected {_EXPECTED[kind]} as value, "
                f"received {column.type}",
                "remove the column from data.types",
            )
        return kind, array, bad
    if kind is Kind.INT and pa.types.is_floating(column.type) and (values := to_int64(to_float64(column))) is not None:
        return kind, values, []
    if kind is Kind.INT and pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return kind, column.cast(pa.int64()), []
    if kind is Kind.FLOAT and _is_number(column.type):
        return kind, to_float32(to_float64(column)), []
    if not pa.types.is_binary(column.type):
        column = to_text(decode_dictionary(column))
    if kind is Kind.BYTES:
        bad = _find_undecodable(column)
        return kind, column, bad
    numeric = with_point(column) if decimal == "," else column
    if (values := _cast(numeric, kind)) is not None:
        return kind, values, []
    texts = numeric.to_pylist()
    valid = [text is None or text.lower() in _BOOLEANS or _infer_kind_of_number(text) <= kind for text in texts]
    if not all(valid):
        expected = f"expected {_EXPECTED[kind]}, received"
        return (
            kind,
            None,
            [(row, f"{expected} {quote(column[row].as_py())}") for row, is_valid in enumerate(valid) if not is_valid],
        )
    return kind, parse(numeric, kind), []


def _convert_typed(column: pa.Array, guess: Kind | None) -> _Converted:
    """Convert a typed column to the guessed kind, by default to the widest type of the same sort in tf.Examples."""
    column = decode_dictionary(column)
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
        return kind, replace_values(column, values), []
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
        kind, array = Kind.FLOAT, to_float32(to_float64(column))
    elif not pa.types.is_null(column.type):
        kind, array = Kind.BYTES, to_text(column)
        if (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) and (
            bad := _find_undecodable(array)
        ):
            return kind, None, bad
    if all_missing(array):
        # Empty lists have a type as well, which must be the same in all blocks.
        return Kind.MISSING, array if guess is None else pa.nulls(len(array), ARROW_TYPES[guess]), []
    if guess is None or kind == guess:
        return kind, array, []
    if kind > guess:
        return kind, None, []
    return kind, to_float32(array.cast(pa.float64(), safe=False)) if guess is Kind.FLOAT else to_text(array), []


def quote(value: bytes) -> str:
    """Format a value for an error message: in quotes, truncated to 40 bytes, with bytes escaped that are not UTF-8."""
    short = value if len(value) <= 40 else value[:40] + b"..."
    return f"'{short.decode(errors='backslashreplace')}'"


def parse(column: pa.Array, kind: Kind) -> pa.Array:
    """Convert text (binary, null where missing) to values of a kind.

    Raises:
      ValueError: If a text is not a value of the kind.
    """
    if kind is Kind.BYTES:
        return column
    if all_missing(column):
        return pa.nulls(len(column))
    values = _cast(column, kind)
    return _parse_distinct(column, kind) if values is None else values


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _cast(column: pa.Array, kind: Kind) -> pa.Array | None:
    """Parse text as numbers with Arrow; return None if a text is not a number, or Python parses it differently."""
    try:
        values = column.cast(pa.int64() if kind is Kind.INT else pa.float64())
    except pa.ArrowInvalid:
        return None
    if kind is Kind.INT:
        return None if _has_letters(column) else values
    return to_float32(values)


def _has_letters(column: pa.Array) -> bool:
    """Return whether a column contains hexadecimal integers: Arrow parses 0x1F as 31, but Python's `int` refuses it."""
    offsets, data = _offsets_and_bytes(column)
    data = data[offsets[0] : offsets[-1]]
    return bool(data.size and data.max() > ord("9"))


def _has_codes(column: pa.Array) -> bool:
    return bool(len(find_codes(column)))


def find_codes(column: pa.Array) -> npt.NDArray[np.intp]:
    """Return the rows of text (binary) that contain a code, such as a zip code with a leading zero; see `_CODE`."""
    offsets, data = _offsets_and_bytes(column)
    if not data.size:
        return np.empty(0, np.intp)
    # The offset of an empty text may equal the length of the data, so clip it.
    first = data.take(offsets[:-1], mode="clip")
    rows = np.flatnonzero((first == ord("0")) | (first == ord("+")))
    second = data.take(offsets[rows] + 1, mode="clip")
    rows = rows[(second >= ord("0")) & (second <= ord("9"))]
    is_code = pc.match_substring_regex(column.take(pa.array(rows)), _CODE).fill_null(False)
    return np.asarray(rows[np.asarray(is_code)] if rows.size else rows)


def _offsets_and_bytes(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offsets of the texts of a binary column, shape [rows + 1], and the bytes of all texts."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(column.buffers()[2] or b"", np.uint8)


_BOOLEANS = {b"true": 1, b"false": 0}
"""Words that are read as numbers in columns whose configured type is a number."""


def _parse_distinct(column: pa.Array, kind: Kind) -> pa.Array:
    """Parse text by Python's rules, one distinct value at a time, such as " 7" and "+7"; see `parse`."""
    coded = column.dictionary_encode()
    number: Callable[[str], float] = int if kind is Kind.INT else float
    texts = coded.dictionary.to_pylist()
    values = [_BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else parse_number(text, number) for text in texts]
    if kind is Kind.INT and not all(value in _INT64 for value in values):
        raise ValueError("out of the range of int64")
    distinct = pa.array(values, pa.int64() if kind is Kind.INT else pa.float64())
    return (distinct if kind is Kind.INT else to_float32(distinct)).take(coded.indices)


def _infer_kind_of_value(text: bytes) -> Kind:
    """Return the kind of a field that is not missing."""
    return Kind.BYTES if _IS_CODE.match(text) else _infer_kind_of_number(text)


def _infer_kind_of_number(text: bytes) -> Kind:
    """Return the kind of a field that is not missing, by Python's rules: 007 is the integer 7."""
    try:
        # An integer beyond int64 is probably an ID. As a float it would lose its last digits, so keep it as text.
        return Kind.INT if parse_number(text, int) in _INT64 else Kind.BYTES
    except ValueError:
        pass
    try:
        parse_number(text)
    except ValueError:
        return Kind.BYTES
    return Kind.FLOAT


def _infer_kind(column: pa.Array, before: Kind) -> Kind:
    """Return the smallest kind that can represent a block of a column and, with kind `before`, the earlier blocks."""
    if before is Kind.BYTES or all_missing(column):
        return before
    if _has_codes(column):
        return Kind.BYTES
    if before is not Kind.FLOAT and _try_cast(column, pa.int64()) is not None and not _has_letters(column):
        return Kind.INT
    if (floats := _try_cast(column, pa.float64())) is not None:
        ambiguous = _is_ambiguous(floats)
        if before is Kind.FLOAT or (_fill_null(floats)[~ambiguous] % 1 != 0).any():
            before, column = Kind.FLOAT, column.filter(pa.array(ambiguous))
    kind = before
    for text in column.drop_null().unique().to_pylist():
        kind = max(kind, _infer_kind_of_value(text))
        if kind is Kind.BYTES:
            break
    return kind


def _are_floats(values: pa.Array, before: Kind) -> bool:
    """Return whether `_infer_kind` is certain to infer floats: a float32 with a fraction was not parsed from an int."""
    if _is_ambiguous(values).any():
        return False
    return before is Kind.FLOAT or bool((_fill_null(values) % 1 != 0).any())


def _is_ambiguous(floats: pa.Array) -> npt.NDArray[np.bool_]:
    """Mark values that Arrow and Python may parse differently: NaN, infinity, and numbers of at least 2**63."""
    return ~(np.abs(_fill_null(floats)) < 2.0**63)


def _fill_null(floats: pa.Array) -> npt.NDArray[np.floating[Any]]:
    """Return the values of a column, with 0 for missing values. The column is only copied if it contains nulls."""
    return np.asarray(floats.fill_null(0.0) if floats.null_count else floats)


def _try_cast(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        return None


def _find_undecodable(column: pa.Array) -> list[tuple[int, str]]:
    """Return the rows whose text is not UTF-8, as (row, reason)."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        expected = f"expected {_EXPECTED[Kind.BYTES]}, received"
        texts = enumerate(column.to_pylist())
        return [(row, f"{expected} {quote(text)}") for row, text in texts if text is not None and not _is_utf_8(text)]
    return []


def _is_utf_8(text: bytes) -> bool:
    return text.decode(errors="replace").encode() == text
