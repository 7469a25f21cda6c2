"""Reads delimited text as columns, block by block; a large file in pieces, so that several workers can share it."""

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

from components.errors import InputError
from components.ingest import source
from components.ingest.config import CsvConfig
from components.ingest.header import expect_header, header
from components.ingest.packed import is_packed, open_unpacked
from components.ingest.rows import BadRow, Block, Ledger, Piece, Segment, Traits

_BLOCK = 1 << 20
"""Bytes of text in a block; small enough that a block stays in the processor's caches."""
_MAX_ROW = 1 << 28
"""Bytes; a row longer than this is a quote that was never closed."""
_PIECE = 8 << 20
"""Bytes of text in a piece of a large file: some dozens of pieces are shared out evenly."""
_LOOK = 1 << 18
"""Bytes of text that are looked at in one go for quotes; so few that they stay in the processor's caches."""
_ONE_BYTE = re.compile(r"utf-8|ascii|iso8859|cp125\d|cp437|cp850")
"""Encodings, as Python spells them, in which a delimiter, a quote and a line break are one byte each, and no other byte
looks like them."""
_REPLACED = "\ufffd".encode()


class TextReader:
    """Reads files of text with the same columns.

    Args:
      config: how they are written.
      first: the file that gave the names of the columns.
      names: all the columns.
      wanted: those to take; all if not given.
    """

    def __init__(self, config: CsvConfig, first: str, names: Sequence[str], wanted: Sequence[str] = ()) -> None:
        self._config, self._first, self._names = config, first, list(names)
        self._wanted = [name for name in names if not wanted or name in wanted]
        self.traits = Traits(encoding=config.encoding)

    def head(self, path: str, split: str | None) -> Piece:
        """The whole file, of which the first block will do."""
        return Piece(path, split=split)

    def cut(self, path: str, split: str | None) -> list[Piece]:
        """The pieces of a file. A file is only cut where it is certain what is inside quotes and what is not.

        Raises:
          InputError: the file has another header than the first one, or no rows.
        """
        expect_header(path, header(path, self._config), self._first, self._names)
        whole = [Piece(path, split=split)]
        size = source.size(path)
        if size < 2 * _PIECE or self._config.skip_initial_space:
            return whole
        if not _ONE_BYTE.match(codecs.lookup(self._config.encoding).name) or is_packed(path):
            return whole
        borders = list(range(_PIECE, size - _PIECE // 2, _PIECE))
        with source.open_binary(path) as file:
            quoted = _quoted_at(file, [*borders, size], self._config)
        if quoted is None:
            return whole
        starts = [(0, False), *zip(borders, quoted, strict=False)]
        ends = [*zip(borders, quoted, strict=False), (-1, False)]
        return [
            Piece(path, number, start, stop, split, start_quoted, stop_quoted)
            for number, ((start, start_quoted), (stop, stop_quoted)) in enumerate(zip(starts, ends, strict=True))
        ]

    def read(self, piece: Piece, ledger: Ledger) -> Iterator[Block]:
        """The rows of a piece: binary columns, null where a field is missing.

        Raises:
          InputError: the text cannot be read in the encoding of the config, or a quote is never closed.
        """
        reading = _Reading(piece, self._config, self._names, self._wanted)
        yield from reading.blocks(ledger)


class _Reading:
    """One pass over one piece."""

    def __init__(self, piece: Piece, config: CsvConfig, names: list[str], wanted: list[str]) -> None:
        self._piece, self._config, self._names, self._wanted = piece, config, names, wanted
        self._quotes = _Quotes(config)
        self._passed = 0
        """The places that the rows so far took up, those of the header included."""

    def blocks(self, ledger: Ledger) -> Iterator[Block]:
        """The rows, and the account of them."""
        skipped = header(self._piece.path, self._config).lines if self._piece.number == 0 else 0
        self._passed = skipped
        with open_unpacked(self._piece.path) as file:
            start, stop = self._bounds(file)
            if stop is None or start < stop:
                stream, decoder = self._decoded(_Part(file, start, stop))
                for text in self._rows(stream, skipped):
                    yield from self._parse(text, decoder, ledger)
        ledger.read(self._piece, self._passed - skipped, self._passed)

    def _bounds(self, file: IO[bytes]) -> tuple[int, int | None]:
        piece = self._piece
        start = _row_start(file, piece.start, piece.start_quoted, self._config) if piece.start else 0
        stop = None if piece.stop < 0 else _row_start(file, piece.stop, piece.stop_quoted, self._config)
        return start, stop

    def _decoded(self, text: _Part) -> tuple[IO[bytes], _Decoder | None]:
        """The text as UTF-8."""
        stream: io.RawIOBase = text
        decoder = None
        if codecs.lookup(self._config.encoding).name not in ("utf-8", "utf-8-sig", "ascii"):
            stream = decoder = _Decoder(io.BufferedReader(stream, _BLOCK), self._config.encoding)
        if self._config.skip_initial_space:
            stream = _Stripped(io.BufferedReader(stream, _BLOCK), self._quotes)
        return io.BufferedReader(stream, _BLOCK), decoder

    def _rows(self, stream: IO[bytes], skipped: int) -> Iterator[bytes]:
        """The text behind the header, in parts of whole rows.

        Arrow could do that as well. But it reads ahead in a thread of its own, for which whoever deletes its reader
        waits; if the stream is one of Python's, that thread waits for the interpreter's lock at that moment, for ever.
        And it drops a line feed that starts a block behind a carriage return, even inside quotes.
        """
        held = _behind(stream, skipped) if self._piece.number == 0 else b""
        while data := stream.read(max(_BLOCK, len(held))):
            held += data
            end = self._quotes.row_end(held)
            if end:
                yield held[:end]
                held = held[end:]
            elif len(held) >= _MAX_ROW:
                told = f"a row is longer than {_MAX_ROW >> 20} MiB; a quote may be opened there and never closed"
                raise InputError(
                    f"{self._piece.path}: {told}", "close the quote; for fields that are no text, leave the column out"
                )
        if held:
            yield held
            if self._quotes.open_at_end(held):
                raise InputError(
                    f"{self._piece.path}, row {self._passed}: a quote is opened and never closed",
                    "close it, or set data.csv.quote",
                )

    def _parse(self, text: bytes, decoder: _Decoder | None, ledger: Ledger) -> Iterator[Block]:
        ragged: list[csv.InvalidRow] = []
        if text.startswith(codecs.BOM_UTF8):
            # Not that of the file, but Arrow would drop it: not so behind an empty line.
            text = b"\n" + text
        try:
            columns = self._columns(text, ragged)
            restored: Callable[[str], str] = str
            if decoder is not None and decoder.replaced:
                # What a decoder cannot read must not pass for text: as these bytes it is none.
                columns = [_map(column, lambda field: field.replace(_REPLACED, b"\xff")) for column in columns]
        except pa.ArrowInvalid as error:
            if "CSV parse error" not in str(error):
                raise
            # Arrow cannot hand over the text of a ragged row that is not UTF-8. As latin-1 any text can.
            ragged.clear()
            columns = [_map(column, _from_latin) for column in self._columns(text.decode("latin-1").encode(), ragged)]
            restored = _restored
        for row in ragged:
            reason = f"expected {row.expected_columns} fields, received {row.actual_columns}"
            place = self._passed + row.number
            ledger.bad(BadRow(self._piece.path, self._piece.number, place, reason, None, restored(row.text)))
        rows = len(columns[0])
        if rows:
            segment = Segment(self._piece, rows, self._places(rows, [row.number for row in ragged]))
            yield Block(pa.RecordBatch.from_arrays(columns, self._wanted), (segment,))
        self._passed += rows + len(ragged)

    def _columns(self, text: bytes, ragged: list[csv.InvalidRow]) -> list[pa.Array]:
        """The columns of some rows, and into `ragged` those that have another number of fields."""

        def on_ragged(row: csv.InvalidRow) -> str:
            ragged.append(row)
            return "skip"

        read_options = csv.ReadOptions(
            # One thread: only then are ragged rows numbered, and the cores are shared out by Beam.
            use_threads=False,
            # All of it.
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
            column_types={name: pa.binary() for name in self._wanted},
            include_columns=self._wanted,
            null_values=["", *self._config.null_values],
            strings_can_be_null=True,
        )
        # In memory of Arrow's own, so that no thread of Arrow ever waits for the interpreter's lock.
        memory = pa.BufferOutputStream()
        memory.write(text)
        in_memory = pa.BufferReader(memory.getvalue())
        try:
            # Unlike `read_csv` this does not search the whole heap for references to its signal handler.
            batches = list(csv.open_csv(in_memory, read_options, parse_options, convert_options))
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise
            batches = []
        if not batches:
            return [pa.nulls(0, pa.binary()) for _ in self._wanted]
        return [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]

    def _places(self, rows: int, ragged: list[int]) -> Callable[[int], int]:
        """The number of a row in the piece: a text editor's, the header's lines counted, the ragged rows too."""
        if not ragged:
            return functools.partial(operator.add, self._passed + 1)
        places = np.setdiff1d(np.arange(1, rows + len(ragged) + 1), ragged) + self._passed
        return cast("list[int]", places.tolist()).__getitem__


def _behind(stream: IO[bytes], lines: int) -> bytes:
    """What has been read of a text, without its first lines, and without a byte-order mark."""
    ends = re.compile(rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}" % lines)
    text = b""
    while True:
        data = stream.read(max(_BLOCK, len(text)))
        text += data
        found = ends.match(text)
        # A CR at the end may have its LF still to come.
        if not data or (found and found.end() < len(text)):
            return text[found.end() :].removeprefix(b"" if lines else codecs.BOM_UTF8) if found else b""


class _Quotes:
    """Tells what of a text is inside quotes, as Arrow sees it: a field is quoted if its first character is a quote."""

    def __init__(self, config: CsvConfig) -> None:
        self._quote = quote = config.quote.encode()
        self._is_fence = np.zeros(256, bool)
        self._is_fence[[ord(sign) for sign in (config.delimiter, "\r", "\n", config.quote)]] = True
        q, delimiter = re.escape(quote), re.escape(config.delimiter.encode())
        quoted = q + rb"[^" + q + rb"]*(?:" + q * 2 + rb"[^" + q + rb"]*)*(?P<closed>" + q + rb")?"
        self.field = re.compile(rb"(?P<sign>" + delimiter + rb"|\r|\n)(?P<spaces> *)(?P<quoted>" + quoted + rb")?")
        """The start of a field, up to the end of what is quoted; with spaces before."""
        self._field = re.compile(rb"(?P<sign>" + delimiter + rb"|\r|\n)(?P<quoted>" + quoted + rb")?")

    def tidy(self, text: bytes, inside: bool, before: bytes, after: bytes) -> bool | None:
        """Whether a text ends inside quotes; None if its quotes do not tell.

        They do if every other quote stands at the start of a field, and those in between at the end of one, or doubled.

        Args:
          text: any part of a text.
          inside: whether it starts inside quotes.
          before: the character before it.
          after: the character behind it.
        """
        if self._quote not in text:
            return inside
        signs = np.frombuffer(before + text + after, np.uint8)
        places = np.flatnonzero(signs[1:-1] == self._quote[0]) + 1
        openings, closings = places[inside::2], places[not inside :: 2]
        if not (self._is_fence[signs[openings - 1]].all() and self._is_fence[signs[closings + 1]].all()):
            return None
        return inside ^ bool(len(places) % 2)

    def row_end(self, text: bytes) -> int:
        """Where the last whole row of a text ends that starts with a row; 0 if there is none."""
        end = _line_end(text, len(text))
        inside = self.tidy(text, False, b"\n", b"\n")
        if inside is None:
            starts = self._field.finditer(b"\n" + text)
            return max((start.start() for start in starts if start["sign"] in b"\r\n"), default=0)
        inside ^= bool(text.count(self._quote, end) % 2)
        while inside and end:
            above = _line_end(text, end - 1)
            inside ^= bool(text.count(self._quote, above, end) % 2)
            end = above
        return end

    def open_at_end(self, text: bytes) -> bool:
        """Whether a text that starts with a row ends inside quotes."""
        inside = self.tidy(text, False, b"\n", b"\n")
        if inside is None:
            *_, last = self._field.finditer(b"\n" + text)
            return last["quoted"] is not None and last["closed"] is None
        return inside


def _line_end(text: bytes, stop: int) -> int:
    """Where the last line of the first `stop` bytes of a text ends; 0 if there is none."""
    return max(text.rfind(b"\n", 0, stop), text.rfind(b"\r", 0, stop)) + 1


class _Part(io.RawIOBase):
    """The bytes of a file from `start` up to `stop`, or to its end."""

    def __init__(self, file: IO[bytes], start: int, stop: int | None) -> None:
        self._file, self._left = file, None if stop is None else stop - start
        # Unless it is compressed, in which case it cannot be sought in and is read as a whole.
        if file.seekable():
            file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._file.read(wanted)
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)


class _Decoder(io.RawIOBase):
    """Text of some encoding as UTF-8; what cannot be decoded becomes U+FFFD."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._held = b""
        self.replaced = False
        """Whether there was anything that cannot be decoded."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            data = self._stream.read(_BLOCK)
            text = self._decoder.decode(data, final=not data)
            self.replaced |= "\ufffd" in text
            self._held = text.encode()
            if not data:
                break
        count = min(len(buffer), len(self._held))
        buffer[:count], self._held = self._held[:count], self._held[count:]
        return count


class _Stripped(io.RawIOBase):
    """Text in UTF-8 without the spaces at the start of its fields, but for those inside quotes."""

    def __init__(self, stream: Any, quotes: _Quotes) -> None:
        self._stream, self._quotes = stream, quotes
        # The text is held from the start of a field on, so it begins as if it stood behind another row.
        self._held, self._ready, self._begun = b"\n", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._held:
            # As much again as is held, so that a long field is not looked at again and again.
            data = self._stream.read(max(_BLOCK, len(self._held)))
            self._ready, self._held = self._strip(self._held + data, not data)
            if self._ready and not self._begun:
                self._ready, self._begun = self._ready[1:], True
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _strip(self, text: bytes, ended: bool) -> tuple[bytes, bytes]:
        """The fields without their spaces, and, unless the text has ended, the last one, which may go on."""
        last = dropped = before = 0

        def strip(start: re.Match[bytes]) -> bytes:
            nonlocal last, dropped, before
            last, before = start.start(), dropped
            dropped += len(start["spaces"])
            return start["sign"] + (start["quoted"] or b"")

        stripped = self._quotes.field.sub(strip, text)
        return (stripped, b"") if ended else (stripped[: last - before], text[last:])


def _quoted_at(file: IO[bytes], borders: Iterable[int], config: CsvConfig) -> list[bool] | None:
    """Whether each border lies inside quotes; None if the quotes do not tell, or if the last one is never closed.

    Args:
      file: read from its start up to the last border.
      borders: offsets in bytes, ascending; the last one is the size of the file.
      config: how the file is written.
    """
    quotes = _Quotes(config)
    wanted = list(borders)
    quoted: dict[int, bool] = {}
    inside = False
    before = b"\n"
    position = 0
    for border in sorted({*range(_LOOK, wanted[-1], _LOOK), *wanted}):
        data = file.read(border - position + 1)
        block, after = data[: border - position], data[border - position :]
        file.seek(border)
        inside_at = quotes.tidy(block, inside, before, after or b"\n")
        if inside_at is None:
            return None
        quoted[border] = inside = inside_at
        before, position = block[-1:], border
    return None if inside else [quoted[border] for border in wanted]


def _row_start(file: IO[bytes], offset: int, quoted: bool, config: CsvConfig) -> int:
    """The first byte of the first row that starts at `offset` or behind it."""
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


def _map(column: pa.Array, change: Any) -> pa.Array:
    """A column with another text for each distinct one."""
    coded = column.dictionary_encode()
    return pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)


def _from_latin(text: bytes) -> bytes:
    return text.decode().encode("latin-1")


def _restored(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "backslashreplace")
