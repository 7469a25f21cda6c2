"""Read delimited text as columns, block by block. A large file is divided into ranges, which several workers share."""

from __future__ import annotations

import codecs
import functools
import io
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
from pyarrow import csv

from components.base.errors import InputError
from components.data import file_io
from components.data.compression import is_compressed, open_decompressed
from components.ingest.blocks import BadRow, Block, BlockSource, FileRange, ReaderProperties, RowLog
from components.ingest.csv_header import check_header, read_header
from components.ingest.number_texts import plain_numbers
from components.ingest.text_config import CsvConfig

_BLOCK = 1 << 20
"""Bytes of text in a block of a narrow table, small enough to stay in the processor's caches."""
_NARROW, _LARGEST_FACTOR = 16, 16
"""Number of columns of a narrow table, and the largest factor by which a block of a wider table is larger. The size of
a block is proportional to the number of columns, because every column of a block has a fixed cost."""
_MAX_ROW = 1 << 28
"""Maximum bytes of a row. A longer row contains a quote that is never closed."""
_RANGE_BYTES, _BLOCKS_OF_RANGE = 8 << 20, 8
"""Bytes of text in a range of a large file, and number of blocks of a narrow table in it. A large file has dozens of
ranges, so the workers are evenly loaded."""
_SCAN = 1 << 18
"""Bytes of text that are scanned for quotes at once, few enough to stay in the processor's caches."""
_ONE_BYTE = re.compile(r"utf-8|ascii|iso8859|cp125\d|cp437|cp850")
"""Encodings, by their names in Python, in which a delimiter, a quote and a line break are single bytes that do not
occur in other characters."""
_REPLACED = "\ufffd".encode()


class CsvReader:
    """Reads text files with the same columns.

    Args:
      config: Format of the text.
      first: Path of the file that the names of the columns come from.
      names: Names of all columns.
      selected: Names of the columns to read; () for all.
      range_bytes: Bytes of text in a range of a large file. If None, 8 MiB, or more for a wide table.
    """

    def __init__(
        self,
        config: CsvConfig,
        first: str,
        names: Sequence[str],
        selected: Sequence[str] = (),
        range_bytes: int | None = None,
    ) -> None:
        self._config, self._first, self._names, self._range_bytes = config, first, list(names), range_bytes
        self._selected = [name for name in names if not selected or name in selected]
        self.properties = ReaderProperties(encoding=config.encoding, decimal=config.decimal)

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the whole file. The caller only reads its first block."""
        return FileRange(path, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Divide a file into ranges, if its quotes are unambiguous.

        Raises:
          InputError: If the header differs from the header of the first file, or the file lacks rows.
        """
        check_header(path, read_header(path, self._config), self._first, self._names)
        undivided = [FileRange(path, split=split)]
        size = file_io.size(path)
        # A range of a wide table must contain at least one block.
        step = self._range_bytes or _RANGE_BYTES * max(1, _width_factor(len(self._names)) // _BLOCKS_OF_RANGE)
        if size < 2 * step or self._config.skip_initial_space:
            return undivided
        if not _ONE_BYTE.match(codecs.lookup(self._config.encoding).name) or is_compressed(path):
            return undivided
        borders = list(range(step, size - step // 2, step))
        with file_io.open_binary(path) as file:
            quoted = _find_quoted(file, [*borders, size], self._config)
        if quoted is None:
            return undivided
        starts = [(0, False), *zip(borders, quoted, strict=False)]
        ends = [*zip(borders, quoted, strict=False), (-1, False)]
        return [
            FileRange(path, number, start, stop, split, start_quoted, stop_quoted)
            for number, ((start, start_quoted), (stop, stop_quoted)) in enumerate(zip(starts, ends, strict=True))
        ]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range: binary columns, null where a field is missing.

        Raises:
          InputError: If the text does not have the configured encoding, or a quote is never closed.
        """
        range_reader = _RangeReader(file_range, self._config, self._names, self._selected)
        yield from range_reader.blocks(row_log)


def _width_factor(columns: int) -> int:
    """Return the factor by which a block of a table is larger than a block of a narrow table."""
    return min(max(columns // _NARROW, 1), _LARGEST_FACTOR)


class _RangeReader:
    """Reads one range once."""

    def __init__(self, file_range: FileRange, config: CsvConfig, names: list[str], selected: list[str]) -> None:
        self._file_range, self._config, self._names, self._selected = file_range, config, names, selected
        self._quotes = _QuoteScanner(config)
        self._block = _BLOCK * _width_factor(len(names))
        self._position = 0
        """Number of the last row that was read, including the lines of the header."""

    def blocks(self, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of the range, and report them to the log."""
        skipped = read_header(self._file_range.path, self._config).lines if self._file_range.number == 0 else 0
        self._position = skipped
        with open_decompressed(self._file_range.path) as file:
            start, stop = self._find_bounds(file)
            if stop is None or start < stop:
                stream, decoder = self._decode(_ByteRange(file, start, stop))
                for text in self._divide_rows(stream, skipped):
                    yield from self._parse(text, decoder, row_log)
        row_log.add_range(self._file_range, self._position - skipped, self._position)

    def _find_bounds(self, file: IO[bytes]) -> tuple[int, int | None]:
        """Return the offsets of the first row that starts in the range and of the first row that starts after it."""
        start, stop = self._file_range.start, self._file_range.stop
        first = _find_row_start(file, start, self._file_range.start_quoted, self._config) if start else 0
        end = None if stop < 0 else _find_row_start(file, stop, self._file_range.stop_quoted, self._config)
        return first, end

    def _decode(self, text: _ByteRange) -> tuple[IO[bytes], _Utf8Stream | None]:
        """Return the text as a stream of UTF-8, and the decoder of another encoding or None."""
        stream: io.RawIOBase = text
        decoder = None
        if codecs.lookup(self._config.encoding).name not in ("utf-8", "utf-8-sig", "ascii"):
            stream = decoder = _Utf8Stream(io.BufferedReader(stream, _BLOCK), self._config.encoding)
        if self._config.skip_initial_space:
            stream = _SpaceStripper(io.BufferedReader(stream, _BLOCK), self._quotes)
        return io.BufferedReader(stream, _BLOCK), decoder

    def _divide_rows(self, stream: IO[bytes], skipped: int) -> Iterator[bytes]:
        """Yield the text below the header in blocks of complete rows.

        Arrow could divide the text as well, but it has two faults. It reads ahead in a thread, and deleting its reader
        waits for that thread. If the stream is a Python object, the thread waits for the interpreter's lock at that
        moment, which is a deadlock. Moreover, Arrow drops a line feed that starts a block after a carriage return, even
        inside quotes.
        """
        pending = _skip_lines(stream, skipped) if self._file_range.number == 0 else b""
        while data := stream.read(max(self._block, len(pending))):
            pending += data
            end = self._quotes.find_row_end(pending)
            if end:
                yield pending[:end]
                pending = pending[end:]
            elif len(pending) >= _MAX_ROW:
                reason = f"a row is longer than {_MAX_ROW >> 20} MiB; a quote may be opened there and never closed"
                raise InputError(
                    f"{self._file_range.path}: {reason}",
                    "close the quote; if a field is not text, remove its column",
                )
        if pending:
            yield pending
            if self._quotes.is_open_at_end(pending):
                raise InputError(
                    f"{self._file_range.path}, row {self._position}: a quote is opened and never closed",
                    "close it, or set data.csv.quote",
                )

    def _parse(self, text: bytes, decoder: _Utf8Stream | None, row_log: RowLog) -> Iterator[Block]:
        ragged: list[csv.InvalidRow] = []
        if text.startswith(codecs.BOM_UTF8):
            # This is not the byte-order mark of the file. Arrow would drop it unless an empty line precedes it.
            text = b"\n" + text
        try:
            columns = self._parse_columns(text, ragged)
            decode: Callable[[str], str] = str
            if decoder is not None and decoder.replaced:
                # Characters that cannot be decoded must not pass as text: the byte 0xff is never valid UTF-8.
                columns = [_map(column, lambda field: field.replace(_REPLACED, b"\xff")) for column in columns]
        except pa.ArrowInvalid as error:
            if "CSV parse error" not in str(error):
                raise
            # Arrow cannot return the text of a ragged row that is not UTF-8. Latin-1 can decode any bytes.
            ragged.clear()
            latin = text.decode("latin-1").encode()
            columns = [_map(column, _encode_latin) for column in self._parse_columns(latin, ragged)]
            decode = _decode_escaped
        for row in ragged:
            reason = f"expected {row.expected_columns} fields, received {row.actual_columns}"
            position = self._position + row.number
            row_log.add_bad_row(
                BadRow(self._file_range.path, self._file_range.number, position, reason, None, decode(row.text))
            )
        rows = len(columns[0])
        columns = [
            plain_numbers(column, self._config.formats[name], self._config.decimal)
            if name in self._config.formats
            else column
            for name, column in zip(self._selected, columns, strict=True)
        ]
        if rows:
            source = BlockSource(self._file_range, rows, self._positions(rows, [row.number for row in ragged]))
            yield Block(pa.RecordBatch.from_arrays(columns, self._selected), (source,))
        self._position += rows + len(ragged)

    def _parse_columns(self, text: bytes, ragged: list[csv.InvalidRow]) -> list[pa.Array]:
        """Parse rows into columns; append rows with a wrong number of fields to `ragged`."""

        def on_ragged(row: csv.InvalidRow) -> str:
            ragged.append(row)
            return "skip"

        read_options = csv.ReadOptions(
            # Arrow only numbers ragged rows if it uses one thread. Beam uses the other cores.
            use_threads=False,
            # Parse the text as a single block.
            block_size=len(text) + 1,
            column_names=self._names,
        )
        parse_options = csv.ParseOptions(
            delimiter=self._config.delimiter,
            quote_char=self._config.quote,
            newlines_in_values=True,
            invalid_row_handler=on_ragged,
        )
        convert_options = csv.ConvertOptions(
            check_utf8=False,
            column_types={name: pa.binary() for name in self._selected},
            include_columns=self._selected,
            null_values=["", *self._config.null_values],
            strings_can_be_null=True,
        )
        # Copy the text to Arrow's memory, so that threads of Arrow do not wait for the interpreter's lock.
        memory = pa.BufferOutputStream()
        memory.write(text)
        in_memory = pa.BufferReader(memory.getvalue())
        try:
            # Do not use `read_csv`, which searches the whole heap for references to its signal handler.
            batches = list(csv.open_csv(in_memory, read_options, parse_options, convert_options))
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise
            batches = []
        if not batches:
            return [pa.nulls(0, pa.binary()) for _ in self._selected]
        return [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]

    def _positions(self, rows: int, ragged: list[int]) -> Callable[[int], int]:
        """Return a function from the index of a row to its number, which counts the header's lines and ragged rows."""
        if not ragged:
            return functools.partial(operator.add, self._position + 1)
        positions = np.setdiff1d(np.arange(1, rows + len(ragged) + 1), ragged) + self._position
        return cast("list[int]", positions.tolist()).__getitem__


def _skip_lines(stream: IO[bytes], lines: int) -> bytes:
    """Skip the first lines of a text and a byte-order mark; return the bytes that were read after them."""
    ends = re.compile(rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}" % lines)
    text = b""
    while True:
        data = stream.read(max(_BLOCK, len(text)))
        text += data
        match = ends.match(text)
        # If the text ends with CR, the LF after it may not have been read yet.
        if not data or (match and match.end() < len(text)):
            return text[match.end() :].removeprefix(b"" if lines else codecs.BOM_UTF8) if match else b""


class _QuoteScanner:
    """Detects whether text is inside quotes, by Arrow's rule: a field is quoted if its first character is a quote."""

    def __init__(self, config: CsvConfig) -> None:
        self._quote = quote = config.quote.encode()
        self._is_field_border = np.zeros(256, bool)
        self._is_field_border[[ord(sign) for sign in (config.delimiter, "\r", "\n", config.quote)]] = True
        q, delimiter = re.escape(quote), re.escape(config.delimiter.encode())
        quoted = q + rb"[^" + q + rb"]*(?:" + q * 2 + rb"[^" + q + rb"]*)*(?P<closed>" + q + rb")?"
        self.field = re.compile(rb"(?P<sign>" + delimiter + rb"|\r|\n)(?P<spaces> *)(?P<quoted>" + quoted + rb")?")
        """Matches the start of a field, including spaces before it, up to the closing quote."""
        self._field = re.compile(rb"(?P<sign>" + delimiter + rb"|\r|\n)(?P<quoted>" + quoted + rb")?")

    def ends_inside(self, text: bytes, inside: bool, before: bytes, after: bytes) -> bool | None:
        """Return whether a text ends inside quotes; None if its quotes are ambiguous.

        Quotes are unambiguous if they alternate: an opening quote starts a field, and a closing quote ends a field or
        is doubled.

        Args:
          text: Part of a file.
          inside: Whether the text starts inside quotes.
          before: Character before the text.
          after: Character after the text.
        """
        if self._quote not in text:
            return inside
        signs = np.frombuffer(before + text + after, np.uint8)
        positions = np.flatnonzero(signs[1:-1] == self._quote[0]) + 1
        openings, closings = positions[inside::2], positions[not inside :: 2]
        if not (self._is_field_border[signs[openings - 1]].all() and self._is_field_border[signs[closings + 1]].all()):
            return None
        return inside ^ bool(len(positions) % 2)

    def find_row_end(self, text: bytes) -> int:
        """Return the end of the last complete row of a text that starts with a row; 0 without a complete row."""
        end = _find_line_end(text, len(text))
        inside = self.ends_inside(text, False, b"\n", b"\n")
        if inside is None:
            starts = self._field.finditer(b"\n" + text)
            return max((start.start() for start in starts if start["sign"] in b"\r\n"), default=0)
        inside ^= bool(text.count(self._quote, end) % 2)
        while inside and end:
            above = _find_line_end(text, end - 1)
            inside ^= bool(text.count(self._quote, above, end) % 2)
            end = above
        return end

    def is_open_at_end(self, text: bytes) -> bool:
        """Return whether a text that starts with a row ends inside quotes."""
        inside = self.ends_inside(text, False, b"\n", b"\n")
        if inside is None:
            *_, last = self._field.finditer(b"\n" + text)
            return last["quoted"] is not None and last["closed"] is None
        return inside


def _find_line_end(text: bytes, stop: int) -> int:
    """Return the end of the last line in the first `stop` bytes of a text; 0 without a line break."""
    return max(text.rfind(b"\n", 0, stop), text.rfind(b"\r", 0, stop)) + 1


class _ByteRange(io.RawIOBase):
    """The bytes of a file from `start` up to `stop`, or to its end."""

    def __init__(self, file: IO[bytes], start: int, stop: int | None) -> None:
        self._file, self._remaining = file, None if stop is None else stop - start
        # A compressed file is not seekable; it is always read from its start.
        if file.seekable():
            file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer) if self._remaining is None else min(len(buffer), self._remaining)
        data = self._file.read(size)
        buffer[: len(data)] = data
        if self._remaining is not None:
            self._remaining -= len(data)
        return len(data)


class _Utf8Stream(io.RawIOBase):
    """Converts text of an encoding to UTF-8. Bytes that cannot be decoded become U+FFFD."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._decoded_text = b""
        self.replaced = False
        """Whether some bytes could not be decoded."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decoded_text:
            data = self._stream.read(_BLOCK)
            text = self._decoder.decode(data, final=not data)
            self.replaced |= "\ufffd" in text
            self._decoded_text = text.encode()
            if not data:
                break
        count = min(len(buffer), len(self._decoded_text))
        buffer[:count], self._decoded_text = self._decoded_text[:count], self._decoded_text[count:]
        return count


class _SpaceStripper(io.RawIOBase):
    """Removes spaces at the start of fields from UTF-8 text, except inside quotes."""

    def __init__(self, stream: Any, quotes: _QuoteScanner) -> None:
        self._stream, self._quotes = stream, quotes
        # A field starts after a delimiter or a line break, so start with a line break. It is removed again below.
        self._pending, self._ready, self._started = b"\n", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._pending:
            # Double the size of the text in every pass, so that a long field is scanned in linear time.
            data = self._stream.read(max(_BLOCK, len(self._pending)))
            self._ready, self._pending = self._strip(self._pending + data, not data)
            if self._ready and not self._started:
                self._ready, self._started = self._ready[1:], True
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _strip(self, text: bytes, ended: bool) -> tuple[bytes, bytes]:
        """Return the stripped fields, and the last field, which may be incomplete, unless the text has ended."""
        last = dropped = before = 0

        def strip(start: re.Match[bytes]) -> bytes:
            nonlocal last, dropped, before
            last, before = start.start(), dropped
            dropped += len(start["spaces"])
            return start["sign"] + (start["quoted"] or b"")

        stripped = self._quotes.field.sub(strip, text)
        return (stripped, b"") if ended else (stripped[: last - before], text[last:])


def _find_quoted(file: IO[bytes], borders: Iterable[int], config: CsvConfig) -> list[bool] | None:
    """Determine which borders lie inside quotes.

    Args:
      file: Open file, at its start. It is read up to the last border.
      borders: Offsets in bytes, ascending. The last border is the size of the file.
      config: Format of the text.

    Returns:
      For every border, whether it lies inside quotes. None if quotes are ambiguous, or the last quote is never closed.
    """
    quotes = _QuoteScanner(config)
    offsets = list(borders)
    quoted: dict[int, bool] = {}
    inside = False
    before = b"\n"
    position = 0
    for border in sorted({*range(_SCAN, offsets[-1], _SCAN), *offsets}):
        data = file.read(border - position + 1)
        block, after = data[: border - position], data[border - position :]
        file.seek(border)
        inside_at = quotes.ends_inside(block, inside, before, after or b"\n")
        if inside_at is None:
            return None
        quoted[border] = inside = inside_at
        before, position = block[-1:], border
    return None if inside else [quoted[border] for border in offsets]


def _find_row_start(file: IO[bytes], offset: int, quoted: bool, config: CsvConfig) -> int:
    """Return the offset of the first row that starts at `offset` or later."""
    quote = config.quote.encode()
    file.seek(offset - 1)
    first = file.read(1)
    if first == b"\n" and not quoted:
        return offset
    position = offset
    while data := file.read(_BLOCK):
        at = 0
        while True:
            end = data.find(quote if quoted else b"\n", at)
            opening = -1 if quoted else data.find(quote, at, None if end < 0 else end)
            if opening >= 0:
                quoted, at = True, opening + 1
            elif end < 0:
                break
            elif quoted:
                quoted, at = False, end + 1
            else:
                return position + end + 1
        position += len(data)
    return position


def _map(column: pa.Array, change: Callable[[bytes], bytes]) -> pa.Array:
    """Apply a function to the texts of a column, once per distinct text."""
    coded = column.dictionary_encode()
    return pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)


def _encode_latin(text: bytes) -> bytes:
    return text.decode().encode("latin-1")


def _decode_escaped(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "backslashreplace")
