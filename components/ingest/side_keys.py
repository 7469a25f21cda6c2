"""Encode the keys of joins, so that keys of two tables can be compared whatever their formats and types.

A key column of numbers in the side table is compared as numbers: 7, 7.0 and the text `7` are equal, and the text `07`,
which is a code, does not match. Integers of 64 bits are compared exactly. Any other key column is compared as text,
byte by byte. A missing value never matches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.arrow_columns import decode_dictionary, is_text
from components.data.date_texts import Unit
from components.ingest.column_types import Kind, find_codes
from components.ingest.row_filter import read_numbers
from components.ingest.split_assignment import Micros, as_text, mix, single_values, times_of

U64: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]
HASH, TIME, ROW = "hash of the key", "time of the row", "index of the row"
"""Columns of encoded keys. The name of a column of data cannot contain a space."""
_INTEGER = r"^\s*[-+]?[0-9]{1,18}\s*$"
_LONG = 256
"""Bytes from which a text is hashed alone."""


@dataclass(frozen=True)
class KeyColumns:
    """The columns of the key in one of two tables.

    Attributes:
      names: Names of the columns.
      are_numbers: Whether each of them is compared as numbers.
      time: Column of the time; None for a join by key only.
      unit: Unit of times that are numbers.
      decimal: Decimal sign of numbers in text, a point or a comma.
      types: Column → type that the config sets. With the type int or float, the text `07` is 7.
    """

    names: tuple[str, ...]
    are_numbers: tuple[bool, ...]
    time: str | None
    unit: Unit
    decimal: str
    types: Mapping[str, str]

    def encode(self, rows: pa.RecordBatch) -> tuple[dict[str, pa.Array], Mask]:
        """Encode the keys of rows.

        Returns:
          Columns with the values, the hashes and the times of the keys; and whether a key and its time are present,
          bool of shape [rows].
        """
        encoded: dict[str, pa.Array] = {}
        hashes: U64 = np.zeros(rows.num_rows, np.uint64)
        valid = np.ones(rows.num_rows, bool)
        for number, (name, is_number) in enumerate(zip(self.names, self.are_numbers, strict=True)):
            column = single_values(decode_dictionary(rows.column(rows.schema.get_field_index(name))))
            if is_number:
                whole, fraction, is_valid = _to_numbers(column, self.decimal, self.types.get(name) in ("int", "float"))
                encoded[f"whole {number}"], encoded[f"fraction {number}"] = pa.array(whole), pa.array(fraction)
                values = whole.view(np.uint64) + mix(fraction.view(np.uint64))
            else:
                texts = _to_texts(column)
                encoded[f"text {number}"], is_valid = texts, np.asarray(texts.is_valid())
                values = hash_texts(texts)
            hashes = mix(hashes + values)
            valid &= is_valid
        encoded[HASH] = pa.array(hashes)
        if self.time is not None:
            times, is_valid = find_times(rows.column(rows.schema.get_field_index(self.time)), self.unit)
            encoded[TIME], valid = pa.array(times), valid & is_valid
        return encoded, valid


def compare(
    first: Mapping[str, pa.Array], first_rows: Sequence[int], second: Mapping[str, pa.Array], second_rows: Sequence[int]
) -> Mask:
    """Return whether the keys of pairs of rows are equal, bool of shape [pairs]."""
    equal = np.ones(len(first_rows), bool)
    for name, column in first.items():
        if name.startswith("text "):
            pairs = pc.equal(column.take(pa.array(first_rows)), second[name].take(pa.array(second_rows)))
            equal &= np.asarray(pairs.fill_null(False))
        elif name.startswith(("whole ", "fraction ")):
            equal &= np.asarray(column)[first_rows] == np.asarray(second[name])[second_rows]
    return equal


def is_encoded(name: str) -> bool:
    """Return whether a column belongs to an encoded key."""
    return " " in name


def is_number(kind: Kind) -> bool:
    """Return whether the columns of a kind are compared as numbers."""
    return kind in (Kind.INT, Kind.FLOAT)


def find_times(column: pa.Array, unit: Unit) -> tuple[Micros, Mask]:
    """Return the times of rows in microseconds since 1970 (UTC), and whether they are valid; see `times_of`.

    Args:
      column: Numbers, ISO 8601 texts, or typed dates and times, in UTC unless they have a time zone.
      unit: Unit of times that are numbers.
    """
    column = decode_dictionary(column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return np.asarray(micros.fill_null(0)), np.asarray(column.is_valid())
    if is_text(column.type) and (parsed := _parse_times(as_text(column))) is not None:
        return np.asarray(parsed.fill_null(0)), np.asarray(parsed.is_valid())
    return times_of(column, unit)


def _parse_times(texts: pa.Array) -> pa.Array | None:
    """Parse texts of one form at once, as microseconds since 1970; return None if Arrow and `times_of` may differ."""
    lengths = pc.binary_length(texts)
    # Arrow also accepts a date with an hour alone.
    if pc.any(pc.and_(pc.greater(lengths, 10), pc.less(lengths, 16))).as_py():
        return None
    for zone in (None, "UTC"):
        try:
            return texts.cast(pa.string()).cast(pa.timestamp("us", zone)).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
    return None


def _to_numbers(
    column: pa.Array, decimal: str, allows_codes: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], Mask]:
    """Return the whole part and the fraction of numbers, which represent int64 and float64 exactly, and the validity.

    Args:
      column: Numbers or texts.
      decimal: Decimal sign of numbers in text.
      allows_codes: Whether a text with leading zeros is a number.
    """
    column = as_text(column) if is_text(column.type) else column
    whole, fraction = np.zeros(len(column), np.int64), np.zeros(len(column))
    valid = np.zeros(len(column), bool)
    # Parse integers apart from other texts, because a column of float64 would round them.
    for rows, part in _divide_integers(column):
        values, invalid = read_numbers(part, decimal)
        is_valid = np.asarray(values.is_valid()) & ~invalid
        if not allows_codes and pa.types.is_binary(part.type):
            is_valid[find_codes(part)] = False
        if pa.types.is_integer(values.type):
            whole[rows] = np.asarray(values.fill_null(0))
        else:
            numbers = np.asarray(values.fill_null(0.0), np.float64)
            is_valid &= np.abs(numbers) < 2.0**63
            floors = np.floor(np.where(is_valid, numbers, 0.0))
            whole[rows], fraction[rows] = floors.astype(np.int64), np.where(is_valid, numbers, 0.0) - floors
        valid[rows] = is_valid
    return whole, fraction, valid


def _divide_integers(column: pa.Array) -> Iterator[tuple[npt.NDArray[np.intp], pa.Array]]:
    """Yield rows and their values: all rows at once, or integers in text first and then other texts."""
    every = np.arange(len(column))
    if not pa.types.is_binary(column.type) or _are_integers(column):
        yield every, column
        return
    column = pc.if_else(pc.match_substring(column, "x", ignore_case=True), None, column)
    are_integers = np.asarray(pc.match_substring_regex(column, _INTEGER).fill_null(False))
    for rows in (every[are_integers], every[~are_integers]):
        yield rows, column.take(pa.array(rows))


def _are_integers(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    # Arrow also accepts hexadecimal integers.
    return not pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()


def _to_texts(column: pa.Array) -> pa.Array:
    """Return a column as text, with whole numbers without a decimal point, and times in UTC with microseconds."""
    if pa.types.is_floating(column.type) and len(column):
        numbers = np.asarray(column.cast(pa.float64()).fill_null(np.nan))
        is_whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
        whole = pa.array(np.where(is_whole, numbers, 0).astype(np.int64), mask=~is_whole)
        texts = as_text(pa.array(numbers, mask=np.isnan(numbers)))
        return pc.coalesce(as_text(whole), texts)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.timestamp("us"))
    return as_text(column)


def hash_texts(texts: pa.Array) -> U64:
    """Compute 64-bit hashes of texts (binary); the hash of a missing value is undefined. The shape is [rows].

    A text is hashed in words of eight bytes, all texts at a time.
    """
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer((texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes() + bytes(8), np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = mix(lengths.astype(np.uint64))
    words = np.lib.stride_tricks.sliding_window_view(data, 8)
    rows = np.arange(len(texts))
    for at in range(0, int(min(lengths.max(initial=0), _LONG)), 8):
        rows = rows[lengths[rows] > at]
        word = np.ascontiguousarray(words[starts[rows] + at]).view(np.uint64)[:, 0]
        unused = np.maximum(8 - (lengths[rows] - at), 0).astype(np.uint64) * np.uint64(8)
        hashes[rows] = mix(hashes[rows] ^ (word & (np.uint64(2**64 - 1) >> unused)))
    for row in np.flatnonzero(lengths > _LONG).tolist():
        digest = hashlib.blake2b(data[starts[row] : starts[row] + lengths[row]].tobytes(), digest_size=8)
        hashes[row] = int.from_bytes(digest.digest(), "little")
    return hashes
