"""Finds what type each column has over all rows of the input, and converts its values to the types of tf.Examples.

Text (CSV) is looked at value by value: a value is what Python's `int` and `float` take it for, as in TFX's
CsvExampleGen; the common spellings are parsed in columns, the odd ones one by one. Values that have a type already
(Parquet, BigQuery) keep it, in the widest form that a tf.Example has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.errors import InputError
from components.ingest.config import ValueType

_INT64 = range(-(2**63), 2**63)


class Kind(IntEnum):
    """The type of a column; each one can hold every value of those before it."""

    MISSING = 0
    INT = 1
    FLOAT = 2
    BYTES = 3


KINDS: dict[ValueType, Kind] = {"int": Kind.INT, "float": Kind.FLOAT, "bytes": Kind.BYTES}
_ARROW = {Kind.MISSING: pa.null(), Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.binary()}
_EXPECTED = {Kind.INT: "an int64", Kind.FLOAT: "a float", Kind.BYTES: "UTF-8 text"}


@dataclass(frozen=True)
class Misfit:
    """A value that its column cannot take: where it stands in the block, and the words to say so."""

    row: int
    column: str
    reason: str


class Columns:
    """The columns of one worker: their kinds as found so far, and blocks of them converted.

    Args:
      given: kinds that the config names; a value that does not fit is a misfit.
      guess: kinds to convert the others to, as far as they are known.
      encoding: of the text that the values were read from; None if they have types of their own.
      known: kinds that are known to be needed.
    """

    def __init__(
        self,
        given: Mapping[str, Kind],
        guess: Mapping[str, Kind],
        encoding: str | None,
        known: Mapping[str, Kind] | None = None,
    ) -> None:
        self._given, self._encoding = dict(given), encoding
        self.target = {**guess, **given}
        """The kinds that blocks are converted to."""
        self.kinds = dict(known or {})
        """The least kinds that hold all values so far."""

    def take(self, block: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[Misfit]]:
        """Converts a block, or names the values that cannot be taken.

        Args:
          block: columns of text (binary, null where missing), or typed ones.

        Returns:
          Columns of int64, float32, binary or null, or lists of them; None if there are misfits, or if a column is of
          another kind than was guessed. And the misfits.
        """
        arrays: list[pa.Array | None] = []
        misfits: list[Misfit] = []
        kinds = dict(self.kinds)
        for name, column in zip(block.schema.names, block.columns, strict=True):
            known = kinds.get(name, Kind.MISSING)
            if name in self._given:
                found, array, bad = _given(name, column, self._given[name])
            elif self._encoding:
                found, array, bad = _look(column, known, self.target.setdefault(name, Kind.BYTES))
            else:
                found, array, bad = _typed(column, self.target.get(name))
                if found is not Kind.MISSING:
                    self.target.setdefault(name, found)
            kinds[name] = max(known, found)
            arrays.append(array)
            misfits += [Misfit(row, name, self._told(reason)) for row, reason in bad]
        if misfits:
            return None, misfits
        self.kinds = kinds
        if any(array is None for array in arrays):
            return None, []
        return pa.RecordBatch.from_arrays(arrays, block.schema.names), []

    def _told(self, reason: str) -> str:
        """Text that cannot be decoded is told by the encoding that the config names."""
        return reason.replace(_EXPECTED[Kind.BYTES], f"{self._encoding or 'UTF-8'} text", 1)


def merge(kinds: Iterable[Mapping[str, Kind]]) -> dict[str, Kind]:
    """The least kinds that hold the values of all."""
    merged: dict[str, Kind] = {}
    for one in kinds:
        for name, kind in one.items():
            merged[name] = max(kind, merged.get(name, kind))
    return merged


def missing(column: pa.Array) -> bool:
    """Whether a column has no value at all."""
    return bool(column.null_count == len(column))


_Looked = tuple[Kind, "pa.Array | None", list[tuple[int, str]]]
"""The kind found, the converted column (None if it does not have the kind that was guessed), the values that misfit."""


def _look(column: pa.Array, known: Kind, guess: Kind) -> _Looked:
    """Looks at a block of a column of text; `known` is what came before it."""
    if missing(column):
        return known, pa.nulls(len(column)), []
    if guess in (Kind.INT, Kind.FLOAT) and known <= guess:
        values = _cast(column, guess)
        if values is not None and (guess is Kind.INT or (known is Kind.FLOAT and not _odd(values).any())):
            return guess, values, []
    if bad := _undecodable(column):
        return known, None, bad
    kind = _kind_of(column, known)
    return kind, convert(column, guess) if kind <= guess else None, []


def _given(name: str, column: pa.Array, kind: Kind) -> _Looked:
    """A column whose kind the config names."""
    if is_list(column.type):
        found, array, bad = _typed(column, kind)
        if found > kind:
            raise InputError(
                f"data.types: the column {name} holds lists of another type: expected {_EXPECTED[kind]} as value, "
                f"received {column.type}",
                "leave the column out of data.types",
            )
        return kind, array, bad
    if not pa.types.is_binary(column.type):
        column = _text(_decoded(column))
    if kind is Kind.BYTES:
        bad = _undecodable(column)
        return kind, column, bad
    if (values := _cast(column, kind)) is not None:
        return kind, values, []
    words = column.to_pylist()
    fits = [word is None or word.lower() in _BOOLEANS or _kind_of_value(word) <= kind for word in words]
    if not all(fits):
        told = f"expected {_EXPECTED[kind]}, received"
        return kind, None, [(row, f"{told} {shown(words[row])}") for row, fit in enumerate(fits) if not fit]
    return kind, convert(column, kind), []


def _typed(column: pa.Array, guess: Kind | None) -> _Looked:
    """A column that has a type already, as the widest type of its sort that a tf.Example has, or as was guessed."""
    column = _decoded(column)
    if is_list(column.type):
        if missing(column):
            return Kind.MISSING, pa.nulls(len(column)), []
        found, values, bad = _typed(column.flatten(), guess)
        if bad or values is None:
            rows = np.repeat(np.arange(len(column)), np.asarray(pc.list_value_length(column).fill_null(0)))
            return found, None, [(int(rows[at]), reason) for at, reason in bad]
        if values.null_count:
            rows = np.repeat(np.arange(len(column)), np.asarray(pc.list_value_length(column).fill_null(0)))
            empty = sorted(set(rows[np.asarray(values.is_null())].tolist()))
            return found, None, [(row, "expected a list of values, received a missing value inside") for row in empty]
        if pa.types.is_null(values.type):
            values = pa.nulls(0, pa.binary())
        return found, _relisted(column, values), []
    kind, array = Kind.MISSING, column
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        kind = Kind.INT
        if pa.types.is_uint64(column.type):
            large = np.asarray(column.fill_null(0)) > np.uint64(2**63 - 1)
            if large.any():
                told = "expected an int64, received"
                return kind, None, [(int(row), f"{told} {column[int(row)]}") for row in np.flatnonzero(large)]
        array = column.cast(pa.int64())
    elif pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        kind, array = Kind.FLOAT, _single(_double(column))
    elif not pa.types.is_null(column.type):
        kind, array = Kind.BYTES, _text(column)
        if (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) and (bad := _undecodable(array)):
            return kind, None, bad
    if missing(array):
        # Lists without values have a type all the same, and it is the same one in all blocks.
        return Kind.MISSING, array if guess is None else pa.nulls(len(array), _ARROW[guess]), []
    if guess is None or kind == guess:
        return kind, array, []
    if kind > guess:
        return kind, None, []
    return kind, _single(array.cast(pa.float64(), safe=False)) if guess is Kind.FLOAT else _text(array), []


def is_nested(type_: pa.DataType) -> bool:
    """Whether a tf.Example has no place for a type: structs, maps, lists of lists."""
    if is_list(type_):
        return is_list(type_.value_type) or is_nested(type_.value_type)
    return bool(pa.types.is_nested(type_) or pa.types.is_map(type_))


def is_list(type_: pa.DataType) -> bool:
    """Whether the values of a type are lists, of whatever form."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _relisted(column: pa.Array, values: pa.Array) -> pa.Array:
    """The lists of a column, with other values inside."""
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
    mask = np.append(np.asarray(column.is_null()), False) if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends, mask=mask), values)


def _text(column: pa.Array) -> pa.Array:
    """A column as text in UTF-8, typed binary: dates and times in ISO 8601, numbers in their shortest form."""
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


def shown(value: bytes) -> str:
    """A value as an error shows it: cut where it is long, escaped where it is no text."""
    told = value if len(value) <= 40 else value[:40] + b"..."
    return f"'{told.decode(errors='backslashreplace')}'"


def convert(column: pa.Array, kind: Kind) -> pa.Array:
    """The fields of a column of text (binary, null where missing) as values of a kind.

    Raises:
      ValueError: a field is no such value.
    """
    if kind is Kind.BYTES:
        return column
    if missing(column):
        return pa.nulls(len(column))
    values = _cast(column, kind)
    return _convert_slowly(column, kind) if values is None else values


def _cast(column: pa.Array, kind: Kind) -> pa.Array | None:
    """Text as numbers, in columns; None if a field is no number, or one that Arrow and Python take differently."""
    try:
        values = column.cast(pa.int64() if kind is Kind.INT else pa.float64())
    except pa.ArrowInvalid:
        return None
    if kind is Kind.INT:
        return None if _has_letters(column) else values
    return _single(values)


def _double(column: pa.Array) -> pa.Array:
    """Floats and decimals as float64."""
    if pa.types.is_float16(column.type):
        # Arrow knows no way from half precision.
        return pa.array(np.asarray(column, np.float64), mask=np.asarray(column.is_null()))
    return column.cast(pa.float64())


def _single(values: pa.Array) -> pa.Array:
    """float64 as float32, the one floating type of a tf.Example; what is too large becomes infinite."""
    return values.cast(pa.float32())


def _has_letters(column: pa.Array) -> bool:
    """Whether a column of integers has a hexadecimal one among them: Arrow reads 0x1F as 31, Python does not."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return bool(data.size and data.max() > ord("9"))


_BOOLEANS = {b"true": 1, b"false": 0}
"""Words that are numbers where the config says that the column holds numbers."""


def _convert_slowly(column: pa.Array, kind: Kind) -> pa.Array:
    """As `convert`, with Python's own rules, one distinct value at a time: " 7", "+7", "1_000"."""
    coded = column.dictionary_encode()
    parse: Callable[[str], float] = int if kind is Kind.INT else float
    words = coded.dictionary.to_pylist()
    values = [_BOOLEANS[word.lower()] if word.lower() in _BOOLEANS else parse(word.decode()) for word in words]
    if kind is Kind.INT and not all(value in _INT64 for value in values):
        raise ValueError("out of the range of int64")
    distinct = pa.array(values, pa.int64() if kind is Kind.INT else pa.float64())
    return (distinct if kind is Kind.INT else _single(distinct)).take(coded.indices)


def _kind_of_value(text: bytes) -> Kind:
    """The kind of one field that is not missing, by Python's rules."""
    try:
        # An integer beyond int64 is an identifier rather than a quantity: as float it would lose its last digits.
        return Kind.INT if int(text.decode()) in _INT64 else Kind.BYTES
    except ValueError:
        pass
    try:
        float(text.decode())
    except ValueError:
        return Kind.BYTES
    return Kind.FLOAT


def _kind_of(column: pa.Array, known: Kind) -> Kind:
    """The least kind that holds a block of a column, and what came before it."""
    if known is Kind.BYTES or missing(column):
        return known
    if known is not Kind.FLOAT and _try_cast(column, pa.int64()) is not None and not _has_letters(column):
        return Kind.INT
    if (floats := _try_cast(column, pa.float64())) is not None:
        odd = _odd(floats)
        if known is Kind.FLOAT or (np.asarray(floats.fill_null(0.0))[~odd] % 1 != 0).any():
            known, column = Kind.FLOAT, column.filter(pa.array(odd))
    for text in column.drop_null().unique().to_pylist():
        known = max(known, _kind_of_value(text))
        if known is Kind.BYTES:
            break
    return known


def _odd(floats: pa.Array) -> Any:
    """NaN, infinity, and what could be an integer beyond int64: Arrow and Python may differ about these."""
    return ~(np.abs(np.asarray(floats.fill_null(0.0))) < 2.0**63)


def _try_cast(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        return None


def _undecodable(column: pa.Array) -> list[tuple[int, str]]:
    """The rows whose text is not UTF-8."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        told = f"expected {_EXPECTED[Kind.BYTES]}, received"
        texts = enumerate(column.to_pylist())
        return [(row, f"{told} {shown(text)}") for row, text in texts if text is not None and not _is_utf_8(text)]
    return []


def _is_utf_8(text: bytes) -> bool:
    return text.decode(errors="replace").encode() == text
