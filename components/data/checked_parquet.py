"""Checksums of Parquet files, so that a flipped bit in cached examples is an error instead of another value.

Parquet has optional checksums of pages, but pyarrow 10 neither writes nor verifies them. Therefore this module computes
a checksum of every piece that pyarrow writes, which is mostly a page or the header of a page. The sizes and the CRC-32C
of the pieces become an additional field at the end of the footer, with a number that Parquet does not use. Other
readers skip the field, as Thrift requires.

Source: "File format" and "Thrift" in https://parquet.apache.org/docs/file-format/, and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import io
import struct
from typing import IO

import google_crc32c
import numpy as np
import numpy.typing as npt

_MAGIC = b"CRC1"
_END = b"PAR1"
_TAIL = struct.Struct("<I4s")
"""The end of a file: size of the footer, and `_END`."""
_TRAILER = struct.Struct("<II4s")
"""The end of the field: number of pieces, CRC-32C of the footer without the field, and `_MAGIC`."""
_STOP = b"\0"
"""The end of the footer."""
_FIELD = b"\x08\xfe\xff\x01"
"""The header of the field in Thrift's compact protocol: type binary, and the number 16,383 as a zigzag varint."""
_PIECE = np.dtype([("size", "<u4"), ("crc", "<u4")])


class CheckedSink(io.RawIOBase):
    """A file for pyarrow's ParquetWriter. `finish` adds the checksums.

    Args:
      file: File that receives the bytes. It is not closed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: list[tuple[int, int]] = []
        self._position = 0
        self._held: list[bytes] | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset."""
        return self._position

    def write(self, data: object) -> int:
        """Write bytes, or keep them after `hold`."""
        piece = bytes(data)  # type: ignore[call-overload]
        self._position += len(piece)
        if self._held is None:
            self._write(piece)
        else:
            self._held.append(piece)
        return len(piece)

    def hold(self) -> None:
        """Keep the following bytes in memory. They are the footer, which `finish` writes."""
        self._held = []

    def finish(self) -> None:
        """Write the footer with the checksums."""
        footer_bytes = b"".join(self._held or [])
        size, _ = _TAIL.unpack(footer_bytes[-_TAIL.size :])
        start = len(footer_bytes) - _TAIL.size - size
        if start:
            self._write(footer_bytes[:start])
        footer = footer_bytes[start : -_TAIL.size]
        content = np.array(self._pieces, _PIECE).tobytes() + _TRAILER.pack(
            len(self._pieces), google_crc32c.value(footer), _MAGIC
        )
        footer = footer[: -len(_STOP)] + _FIELD + _varint(len(content)) + content + _STOP
        self._file.write(footer + _TAIL.pack(len(footer), _END))

    def _write(self, piece: bytes) -> None:
        if piece:
            self._pieces.append((len(piece), google_crc32c.value(piece)))
            self._file.write(piece)


class CheckedFile(io.RawIOBase):
    """A Parquet file that verifies the checksum of every piece that is read.

    A file without checksums is read without verification.

    Args:
      file: File to read. It is not closed.

    Raises:
      OSError: If the footer does not match its checksum.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._position = file, 0
        self._size = file.seek(0, io.SEEK_END)
        pieces = self._read_pieces()
        self._ends = np.cumsum(pieces["size"], dtype=np.int64)
        self._crcs = pieces["crc"]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the offset, and return it."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes from the current offset.

        Raises:
          OSError: If the bytes do not match their checksum.
        """
        start = self._position
        stop = self._size if size is None or size < 0 else min(start + size, self._size)
        if stop <= start:
            return b""
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = min(int(np.searchsorted(self._ends, stop, side="left")) + 1, len(self._ends))
        ends = self._ends[first:last]
        begin = start if first >= len(self._ends) else int(self._ends[first - 1]) if first else 0
        data = self._at(begin, max(stop, int(ends[-1])) if len(ends) else stop)
        at = begin
        for end, crc in zip(ends.tolist(), self._crcs[first:last].tolist(), strict=True):
            if google_crc32c.value(data[at - begin : end - begin]) != crc:
                raise OSError(f"the bytes {at} to {end} do not match their checksum")
            at = end
        self._position = stop
        return data[start - begin : stop - begin]

    def _read_pieces(self) -> npt.NDArray[np.void]:
        size, magic = _TAIL.unpack(self._at(max(0, self._size - _TAIL.size), self._size).rjust(_TAIL.size, b"\0"))
        no_pieces = np.empty(0, _PIECE)
        if magic != _END or not len(_STOP) + _TRAILER.size < size <= self._size - _TAIL.size:
            return no_pieces
        end = self._size - _TAIL.size
        footer = self._at(end - size, end)[: -len(_STOP)]
        count, crc, magic = _TRAILER.unpack(footer[-_TRAILER.size :])
        length = count * _PIECE.itemsize + _TRAILER.size
        if magic != _MAGIC:
            return no_pieces
        content, fields = footer[-length:], footer[:-length]
        header = _FIELD + _varint(length)
        if not fields.endswith(header) or google_crc32c.value(fields[: -len(header)] + _STOP) != crc:
            raise OSError("the footer does not match its checksum")
        return np.frombuffer(content[: -_TRAILER.size], _PIECE)

    def _at(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return self._file.read(stop - start)


def _varint(number: int) -> bytes:
    """Encode a number in base 128, lowest digit first. All digits but the last have the highest bit set."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
