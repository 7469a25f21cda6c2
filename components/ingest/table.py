"""Reads delimited text block by block as columns, and finds over whole files what type each column has.

Two passes: `profile` looks at every field and yields counts, types and bad rows; `read` then yields record batches
whose columns have the types that were found over all files. A value is what Python's `int` and `float` take it for,
as in TFX's CsvExampleGen; the common spellings are parsed in columns, the odd ones one by one.
"""

from __future__ import annotations

import codecs
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
from pyarrow import csv

from components.errors import InputError
from components.ingest import source
from components.ingest.config import CsvConfig, ValueType

_BLOCK = 1 << 20  # bytes; small enough that two passes stay in the processor's caches, and memory stays flat
_MAX_BLOCK = 1 << 28  # bytes; a row longer than this is a quote that was never closed
_SHOWN = 5  # bad rows that an error names
_INT64 = range(-(2**63), 2**63)


class Kind(IntEnum):
    """The type of a column; each one can hold every value of those before it."""

    MISSING = 0
    INT = 1
    FLOAT = 2
    BYTES = 3


_KINDS: dict[ValueType, Kind] = {"int": Kind.INT, "float": Kind.FLOAT, "bytes": Kind.BYTES}


@dataclass(frozen=True, order=True)
class BadRow:
    """A row that cannot be taken, and why. The row's number is a text editor's: the header is row 1.

    (A line break within quotes, or an empty line, does not count as a row.)
    """

    path: str
    row: int
    reason: str


@dataclass(frozen=True)
class Profile:
    """What the first pass found in one file, or in several."""

    rows: int = 0
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    bad_rows: tuple[BadRow, ...] = ()
    """The first few."""
    bad: int = 0
    """How many there are in all."""
    block: int = _BLOCK
    """The block size that the longest row needs, in bytes."""

    def error(self) -> InputError | None:
        """The error that names the bad rows, if there are any."""
        if not self.bad:
            return None
        first, *others = (f"{bad.path}, row {bad.row}: {bad.reason}" for bad in self.bad_rows)
        more = self.bad - len(self.bad_rows)
        details = [*others, f"and {more} more"] if more else others
        return InputError(first, "mend these rows or leave them out, or set data.csv and data.types to fit", details)


def merge(profiles: Iterable[Profile]) -> Profile:
    """The profile of several files together; the order of the files does not matter."""
    rows = bad = 0
    block = _BLOCK
    kinds: dict[str, Kind] = {}
    bad_rows: list[BadRow] = []
    for profile_ in profiles:
        rows, bad, block = rows + profile_.rows, bad + profile_.bad, max(block, profile_.block)
        for name, kind in profile_.kinds.items():
            kinds[name] = max(kind, kinds.get(name, kind))
        bad_rows = sorted([*bad_rows, *profile_.bad_rows])[:_SHOWN]
    return Profile(rows, kinds, tuple(bad_rows), bad, block)


def profile(path: str, first: str, names: list[str], config: CsvConfig, types: Mapping[str, ValueType]) -> Profile:
    """Reads a whole file, and finds its rows, the types of its columns, and the rows that cannot be taken.

    Args:
      path: a text file, local or remote.
      first: the file that gave the names of the columns.
      names: the columns.
      config: how the file is written.
      types: the columns whose type is given.

    Raises:
      InputError: the header is not as expected, the text cannot be decoded, or a quote is never closed.
    """
    header = source.header(path, config)
    source.expect_header(path, header, first, names)
    block = _BLOCK
    while True:
        try:
            return _Profiler(path, header, config, types).run(block)
        except pa.ArrowInvalid as error:
            if "CSV parse error" in str(error) and config.encoding != "latin-1":
                # Arrow cannot hand over the text of a ragged row that cannot be decoded. As latin-1 any text can.
                return profile(path, first, names, config.model_copy(update={"encoding": "latin-1"}), types)
            if "straddling" not in str(error):
                raise
            if block >= _MAX_BLOCK:
                raise InputError(
                    f"{path}: a row is longer than {block >> 20} MiB; a quote may be opened there and never closed",
                    "close the quote; for fields that are no text, leave the column out",
                ) from error
            block *= 8


def read(path: str, kinds: Mapping[str, Kind], config: CsvConfig, block: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file that was profiled: columns of int64, float32 or binary, or null if all is missing."""
    names = list(kinds)
    for batch in _blocks(path, source.header(path, config), config, block):
        columns = [convert(column, kinds[name]) for name, column in zip(names, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names)


def convert(column: pa.Array, kind: Kind) -> pa.Array:
    """The fields of a column (binary, null where missing) as values of a kind.

    Raises:
      ValueError: a field is no such value.
    """
    if kind is Kind.BYTES:
        return column
    if kind is Kind.MISSING:
        return pa.nulls(len(column))
    try:
        values = column.cast(pa.int64() if kind is Kind.INT else pa.float64())
    except pa.ArrowInvalid:
        return _convert_slowly(column, kind)
    if kind is Kind.INT:
        return _convert_slowly(column, kind) if _has_letters(column) else values
    return _single(values)


def _single(values: pa.Array) -> pa.Array:
    """float64 as float32, the one floating type of a tf.Example; what is too large becomes infinite."""
    return values.cast(pa.float32())


def _has_letters(column: pa.Array) -> bool:
    """Whether a column of integers has a hexadecimal one among them: Arrow reads 0x1F as 31, Python does not."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return bool(data.size and data.max() > ord("9"))


def _convert_slowly(column: pa.Array, kind: Kind) -> pa.Array:
    """As `convert`, with Python's own rules, one distinct value at a time: " 7", "+7", "1_000"."""
    coded = column.dictionary_encode()
    parse: Callable[[str], float] = int if kind is Kind.INT else float
    values = [parse(text.decode()) for text in coded.dictionary.to_pylist()]
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


def _kind_of_column(column: pa.Array, known: Kind) -> Kind:
    """The least kind that holds a block of a column, and what came before it."""
    if known is Kind.BYTES or column.null_count == len(column):
        return known
    if known is not Kind.FLOAT and _cast(column, pa.int64()) is not None and not _has_letters(column):
        return Kind.INT
    if (floats := _cast(column, pa.float64())) is not None:
        values = np.asarray(floats.fill_null(0.0))
        # NaN, infinity, and what could be an integer beyond int64: Arrow and Python may differ about these.
        odd = ~(np.abs(values) < 2.0**63)
        if known is Kind.FLOAT or (values[~odd] % 1 != 0).any():
            known, column = Kind.FLOAT, column.filter(pa.array(odd))
    for text in column.drop_null().unique().to_pylist():
        known = max(known, _kind_of_value(text))
        if known is Kind.BYTES:
            break
    return known


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        return None


class _Profiler:
    """The first pass over one file."""

    def __init__(self, path: str, header: source.Header, config: CsvConfig, types: Mapping[str, ValueType]) -> None:
        self._path, self._header, self._config = path, header, config
        self._given = {name: _KINDS[type_] for name, type_ in types.items()}
        self._kinds = {name: self._given.get(name, Kind.MISSING) for name in header.names}
        self._ragged = array("q")  # the numbers of the ragged rows so far, ascending
        self._rows = 0
        self._bad = 0
        self._bad_rows: list[BadRow] = []

    def run(self, block: int) -> Profile:
        last = None
        for batch in _blocks(self._path, self._header, self._config, block, self._on_ragged):
            for name, column in zip(self._header.names, batch.columns, strict=True):
                self._look_at(name, column)
            self._rows += batch.num_rows
            last = batch.columns[-1][-1].as_py() if batch.num_rows else last
        self._refuse_open_quote(last)
        return Profile(self._rows + len(self._ragged), self._kinds, tuple(self._bad_rows), self._bad, block)

    def _look_at(self, name: str, column: pa.Array) -> None:
        if name not in self._given:
            self._kinds[name] = _kind_of_column(column, self._kinds[name])
        elif self._kinds[name] is not Kind.BYTES:
            for index, value in _misfits(column, self._kinds[name]):
                expected = "an int64" if self._kinds[name] is Kind.INT else "a float"
                self._add(self._row(index), f"column {name}: expected {expected}, received {value}")
        if self._kinds[name] is Kind.BYTES:
            for index, value in _misfits(column, Kind.BYTES):
                self._add(self._row(index), f"column {name}: expected {self._config.encoding} text, received {value}")

    def _on_ragged(self, row: csv.InvalidRow) -> str:
        self._ragged.append(row.number)
        self._add(row.number, f"expected {row.expected_columns} fields, received {row.actual_columns}")
        return "skip"

    def _add(self, row: int, reason: str) -> None:
        self._bad += 1
        if len(self._bad_rows) < _SHOWN or row < self._bad_rows[-1].row:
            self._bad_rows = sorted([*self._bad_rows, BadRow(self._path, row, reason)])[:_SHOWN]

    def _row(self, index: int) -> int:
        """The number in the file of a row of the block at hand: the ragged rows before it were skipped."""
        row = self._header.lines + 1 + self._rows + index
        before = 0
        while (found := bisect_right(self._ragged, row + before)) != before:
            before = found
        return row + before

    def _refuse_open_quote(self, last: bytes | None) -> None:
        """Refuses a file whose last quote is never closed: its last field has swallowed all rows below it."""
        line_break, quote = (sign.encode(self._config.encoding) for sign in ("\n", self._config.quote))
        if not last or b"\n" not in last or line_break != b"\n":
            return
        with source.open_binary(self._path) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 64))
            tail = file.read().rstrip(b"\r\n")
        if not tail.endswith(quote):
            raise InputError(
                f"{self._path}, row {self._row(-1)}: a quote is opened and never closed",
                "close it, or set data.csv.quote",
            )


def _misfits(column: pa.Array, kind: Kind) -> list[tuple[int, str]]:
    """The places of the fields that are no value of a kind (for bytes: no UTF-8 text), each with what stands there."""
    try:
        convert(column, kind)
        if kind is Kind.BYTES:
            column.cast(pa.string())
    except ValueError:
        texts = column.to_pylist()
        return [(at, _short(text)) for at, text in enumerate(texts) if text is not None and not _fits(text, kind)]
    return []


def _fits(text: bytes, kind: Kind) -> bool:
    if kind is Kind.BYTES:
        return text.decode(errors="replace").encode() == text
    return _kind_of_value(text) <= kind


def _short(text: bytes) -> str:
    told = text if len(text) <= 40 else text[:40] + b"..."
    return f"'{told.decode(errors='backslashreplace')}'"


def _blocks(
    path: str,
    header: source.Header,
    config: CsvConfig,
    block: int,
    on_ragged: Callable[[csv.InvalidRow], str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The fields below the header as binary columns, missing ones as null; in record batches of `block` bytes."""
    utf_8 = codecs.lookup(config.encoding).name in ("utf-8", "utf-8-sig")
    read_options = csv.ReadOptions(
        # One thread: only then are ragged rows numbered, and the cores are shared out by Beam.
        use_threads=False,
        block_size=block,
        column_names=header.names,
        skip_rows=header.lines,
        encoding="utf8" if utf_8 else config.encoding,
    )
    parse_options = csv.ParseOptions(
        delimiter=config.delimiter,
        quote_char=config.quote,
        newlines_in_values=True,
        invalid_row_handler=on_ragged,
    )
    convert_options = csv.ConvertOptions(
        check_utf8=False,
        column_types={name: pa.binary() for name in header.names},
        null_values=["", *config.null_values],
        strings_can_be_null=True,
    )
    try:
        with source.open_binary(path) as file:
            yield from csv.open_csv(file, read_options, parse_options, convert_options)
    except UnicodeDecodeError as error:
        raise source.not_text(path, config.encoding, error.object[error.start]) from error
