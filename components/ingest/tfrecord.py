"""Reads the records of TFRecord files, gzip-compressed or not, and accounts for every byte that is none of theirs.

A record is the length of its data (8 bytes, little-endian), the masked CRC-32C of these 8 bytes (4), the data, and the
masked CRC-32C of the data (4): the files of `tf.io.TFRecordWriter`, read without TensorFlow.

Source: tensorflow/core/lib/io/record_reader.h and record_writer.h, and tensorflow/core/lib/hash/crc32c.h for the mask.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TypeAlias, cast

import google_crc32c
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from components.ingest import source

HEAD, FOOT = 12, 4
"""Bytes of a record before and behind its data."""
_MOST = 1 << 31  # bytes of data; no protobuf message is longer, and a record that is longer is never held in memory
_MAGIC = b"\x1f\x8b\x08"
_GZIP = 31  # zlib's `wbits` for a stream with gzip's header and trailer
_GzipError = cast("type[Exception]", isal_zlib.error)  # its stubs call the class an instance
_INPUT = 1 << 14  # compressed bytes in one step; deflate packs 1032 to 1 at best, so a step yields 16 MiB at most
_SEARCHED = 1 << 18  # bytes in one step of a search; the arrays then stay in the processor's caches

Chunk: TypeAlias = "tuple[list[bytes], list[int], list[Damage]]"
"""The data of records, where each record starts in the stream (bytes), and the damages among them."""


@dataclass(frozen=True)
class Damage:
    """A part of a file that cannot be read as records."""

    offset: int
    """Where it starts: bytes from the start of the stream, which for a gzip file is what it unpacks to."""
    size: int
    """The bytes of the stream that it covers; 0 if all before it was read, and a gzip stream breaks there."""
    reason: str
    """What was expected, and what was received."""


def mask(crc: int) -> int:
    """The form in which TFRecord files hold a CRC-32C; takes an array of uint32 as well."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1 << 12)
def frame_head(length: int) -> bytes:
    """The 12 bytes before `length` bytes of data."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", mask(google_crc32c.value(packed)))


def records(path: str, block: int = 1 << 20) -> Iterator[Chunk]:
    """Reads a file in chunks.

    Every byte of the stream is either part of a record that is handed over (12 bytes, its data, 4 bytes) or in one of
    the damages. A record whose data do not fit their checksum is a damage by itself. Behind a length that does not fit
    its checksum the next one that does is searched for, and all before it is one damage. A gzip file is read up to
    where it breaks.

    Args:
      path: local or remote. The members of a gzip file, if there are several, are one stream.
      block: bytes that are read at a time. Some three times that, or twice the longest record, are held in memory. More
        than the processor's caches hold makes it slower.

    Yields:
      Records and damages in the order of the stream; nothing for an empty file.

    Raises:
      OSError: the file cannot be opened or read.
    """
    with source.open_binary(path) as file:
        start = file.read(HEAD)
        file.seek(0)
        # A first record of 559,903 bytes starts as a gzip file does, but for the checksum of its length.
        stream = _Gzip(file) if start.startswith(_MAGIC) and _length(start) is None else _Plain(file)
        yield from _Reader(stream, block).chunks()


class _Plain:
    """The bytes of a file that is not compressed."""

    problem = ""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)

    def read(self, size: int) -> bytes:
        """The next bytes; fewer than `size` at the end only."""
        return self._file.read(size)

    def left(self) -> int | None:
        """How many bytes are still to come."""
        return self._size - self._file.tell()


class _Gzip:
    """What a gzip file unpacks to, up to its end or to where it breaks: `problem` then tells why."""

    def __init__(self, file: IO[bytes]) -> None:
        self.problem = ""
        self._file = file
        self._ended = False
        self._read = 0  # compressed bytes
        self._begin(b"")

    def read(self, size: int) -> bytes:
        """The next bytes; fewer than `size` at the end only, and up to a step of `_INPUT` more than that."""
        parts, missing = [], size
        while missing > 0 and not self._ended:
            parts.append(self._next())
            missing -= len(parts[-1])
        return b"".join(parts)

    def left(self) -> int | None:
        """How many bytes are still to come is not known."""
        return None

    def _begin(self, compressed: bytes) -> None:
        """Gets ready for a member of the file, of which `compressed` has been read; zeros before it are padding."""
        self._input = compressed.lstrip(b"\0")
        self._begun = self._read - len(self._input)  # where the member starts in the file
        self._given = 0  # bytes that the member has yielded
        self._member = isal_zlib.decompressobj(_GZIP)

    def _next(self) -> bytes:
        if not self._input:
            return self._refill()
        try:
            data = self._member.decompress(self._input)
        except _GzipError as error:
            return self._break_off(f"the gzip stream is damaged: {error}")
        self._input = b""
        self._given += len(data)
        if self._member.eof:
            self._begin(self._member.unused_data)
        return data

    def _refill(self) -> bytes:
        """Reads on; what it returns is there only if the file has come to its end too early."""
        fresh = self._begun == self._read
        self._input = self._file.read(_INPUT)
        self._read += len(self._input)
        if not self._input:
            self._ended = True
            return b"" if fresh else self._break_off("the gzip stream is cut off")
        if fresh:
            self._begin(self._input)
        return b""

    def _break_off(self, problem: str) -> bytes:
        """Ends the stream, and returns what the member holds before the problem, beyond what it has yielded.

        ISA-L drops what it has unpacked in a call that fails, and may hold back a byte where the file is cut off; zlib
        does neither if it gets one byte at a time. So the member is unpacked anew, its last step byte by byte.
        """
        self._ended, self.problem = True, problem
        self._file.seek(self._begun)
        place, sound = self._begun, max(self._begun, self._read - max(len(self._input), _INPUT))
        member = zlib.decompressobj(_GZIP)
        parts, known = [], self._given
        with contextlib.suppress(zlib.error):
            while compressed := self._file.read(min(_INPUT, sound - place) if place < sound else 1):
                place += len(compressed)
                data = member.decompress(compressed)
                parts.append(data[known:])
                known = max(0, known - len(data))
        return b"".join(parts)


class _Reader:
    """Takes a stream apart, block by block."""

    def __init__(self, stream: _Plain | _Gzip, block: int) -> None:
        self._stream, self._block = stream, block
        self._ended = False
        self._start = 0  # where the buffer starts in the stream
        self._buffer = b""  # from the record on that is not complete yet
        self._dropped = 0  # bytes of that record that were read, but are not held
        self._lost: int | None = None  # where the search for a length began

    def chunks(self) -> Iterator[Chunk]:
        missing = 0
        while not self._ended:
            chunk: Chunk = ([], [], [])
            left = self._stream.left()
            if missing + len(self._buffer) - HEAD - FOOT > _MOST or (left is not None and missing > left):
                chunk[2].extend(self._pass_over(missing))
            else:
                self._buffer += self._more(max(self._block, missing))
            missing = self._take(chunk)
            if self._ended:
                chunk[2].extend(self._rest())
            if chunk[0] or chunk[2]:
                yield chunk

    def _more(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._ended = len(data) < size
        return data

    def _pass_over(self, missing: int) -> list[Damage]:
        """Reads to the end of a record, or of the file, without holding what it reads."""
        data = b""
        while self._dropped < missing and not self._ended:
            data = self._more(min(self._block, missing - self._dropped))
            self._dropped += len(data)
        if self._dropped < missing:
            return []
        size = len(self._buffer) + missing
        damage = Damage(self._start, size, f"expected {_MOST} bytes of data at most, received {size - HEAD - FOOT}")
        behind = self._dropped - missing
        self._buffer, self._start, self._dropped = data[len(data) - behind :], self._start + size, 0
        return [damage]

    def _take(self, chunk: Chunk) -> int:
        """Moves what the buffer holds into a chunk; tells how many bytes the next record lacks, if that is known."""
        at = missing = 0
        while True:
            if self._lost is not None:
                at, found = self._search(at)
                if not found:
                    break
                chunk[2].append(_unframed(self._lost, self._start + at))
                self._lost = None
            at, length = self._walk(at, chunk)
            if length is not None:
                missing = at + HEAD + length + FOOT - len(self._buffer)
                break
            if len(self._buffer) - at < HEAD:
                break
            self._lost = self._start + at
            at += 1
        self._buffer, self._start = self._buffer[at:], self._start + at
        return missing

    def _walk(self, at: int, chunk: Chunk) -> tuple[int, int | None]:
        """Takes record by record; tells where the first one is that it cannot take, and its length if that is sound."""
        buffer, size = self._buffer, len(self._buffer)
        payloads: list[bytes] = []
        starts: list[int] = []
        while (length := _length(buffer[at : at + HEAD])) is not None:
            begin = at + HEAD
            end = begin + length
            if end + FOOT > size:
                break
            payloads.append(buffer[begin:end])
            starts.append(at)
            at = end + FOOT
        if payloads:
            self._check(payloads, np.array([*starts, at]), chunk)
        return at, length

    def _check(self, payloads: list[bytes], bounds: npt.NDArray[np.int64], chunk: Chunk) -> None:
        """Adds records to a chunk if they fit their checksums, and damages if they do not.

        Args:
          payloads: the data of records that follow each other.
          bounds: where each of them starts in the buffer, and where the last one ends; shape [records + 1].
          chunk: what they are added to.
        """
        found = mask(np.fromiter(map(google_crc32c.value, payloads), np.uint32, len(payloads)))
        sound = _words(self._buffer)[bounds[1:] - FOOT] == found
        offsets = (bounds + self._start).tolist()
        if sound.all():
            chunk[0].extend(payloads)
            chunk[1].extend(offsets[:-1])
            return
        for index, fits in enumerate(sound.tolist()):
            if fits:
                chunk[0].append(payloads[index])
                chunk[1].append(offsets[index])
            else:
                size = offsets[index + 1] - offsets[index]
                chunk[2].append(Damage(offsets[index], size, "the data do not fit their checksum"))

    def _search(self, at: int) -> tuple[int, bool]:
        """The next place from `at` on with a length that fits its checksum, or where to go on with more bytes."""
        left = self._stream.left()
        stop = max(at, len(self._buffer) - HEAD + 1)
        for begin in range(at, stop, _SEARCHED):
            for place in _heads(self._buffer, begin, min(stop - begin, _SEARCHED)):
                (length,) = struct.unpack_from("<Q", self._buffer, place)
                ends = place + HEAD + length + FOOT
                if length <= _MOST and (left is None or ends <= len(self._buffer) + left):
                    return place, True
        return stop, False

    def _rest(self) -> list[Damage]:
        """What is to be told about the bytes behind the last record, and about the end of the stream."""
        size = len(self._buffer) + self._dropped
        problem = self._stream.problem
        if self._lost is not None:
            end = self._start + size
            lost = _unframed(self._lost, end)
            return [lost, Damage(end, 0, problem)] if problem else [lost]
        if not problem and not size:
            return []
        return [Damage(self._start, size, problem or _cut_off(_length(self._buffer[:HEAD]), size))]


@functools.lru_cache(maxsize=1 << 12)
def _length(head: bytes) -> int | None:
    """How many bytes of data follow these 12; None if they do not fit their checksum, or are fewer."""
    if len(head) < HEAD:
        return None
    (length,) = struct.unpack_from("<Q", head)
    return length if frame_head(length) == head else None


def _unframed(start: int, end: int) -> Damage:
    return Damage(start, end - start, f"the length does not fit its checksum; {end - start} bytes are passed over")


def _cut_off(length: int | None, size: int) -> str:
    """Why the last `size` bytes of a file are no record."""
    if length is None:
        what, received = f"{HEAD} bytes of a length and its checksum", size
    elif size < HEAD + length:
        what, received = f"{length} bytes of data", size - HEAD
    else:
        what, received = f"{FOOT} bytes of a checksum", size - HEAD - length
    return f"expected {what}, received {received}: the file is cut off"


def _words(buffer: bytes) -> npt.NDArray[np.uint32]:
    """The four bytes from each place of the buffer on as an integer; shape [len(buffer) - 3]."""
    return np.ndarray((len(buffer) - 3,), "<u4", buffer, 0, (1,))


def _heads(buffer: bytes, begin: int, count: int) -> list[int]:
    """Those of the `count` places from `begin` on where a length below 2**32 stands that fits its checksum."""
    part = np.frombuffer(buffer, np.uint8, count + HEAD - 1, begin)
    empty = part == 0
    short = empty[4 : 4 + count] & empty[5 : 5 + count] & empty[6 : 6 + count] & empty[7 : 7 + count]
    places = np.flatnonzero(short)
    crcs = functools.reduce(np.bitwise_xor, (table[part[places + byte]] for byte, table in enumerate(_crc_tables())))
    places = places[_words(buffer)[begin + places + 8] == mask(crcs)] + begin
    found: list[int] = places.tolist()
    return found


@functools.cache
def _crc_tables() -> npt.NDArray[np.uint32]:
    """The CRC-32C of 8 bytes, of which the upper 4 are zero, is the exclusive or of an entry for each of the others.

    That is so because a CRC is linear, but for the constant that the CRC of zeros is; shape [4, 256].
    """
    zeros = google_crc32c.value(bytes(8))
    tables = [[google_crc32c.value(struct.pack("<Q", x << 8 * byte)) for x in range(256)] for byte in range(4)]
    linear = np.array(tables, np.uint32) ^ np.uint32(zeros)
    linear[0] ^= np.uint32(zeros)
    return linear
