"""Read TFRecord files, gzip-compressed or not, without TensorFlow, and verify their checksums.

A record consists of the length of its data (8 bytes, little-endian), the masked CRC-32C of these 8 bytes (4), the data,
and the masked CRC-32C of the data (4). If the data do not match their checksum, the record is reported and reading
continues with the next record. With any other damage, the start of the next record is unknown, so reading stops with an
error.

Source: tensorflow/core/lib/io/record_reader.h and record_writer.h, and tensorflow/core/lib/hash/crc32c.h for the mask.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.data.compression import GZIP_MAGIC, decompress
from components.data.file_io import open_binary

HEAD, FOOT = 12, 4
"""Number of bytes of a record before and after the data."""
_MAX_LENGTH = 1 << 31
"""Maximum bytes of data, which is the limit for protobuf messages."""
_Crc = TypeVar("_Crc", int, npt.NDArray[np.uint32])


class Chunk(NamedTuple):
    """Consecutive records of a file.

    Attributes:
      records: Data of the records that match their checksum.
      offsets: Offsets of these records in bytes, in the file or in the decompressed content of a gzip file.
      damaged: Offsets of the records that do not match their checksum.
    """

    records: list[bytes]
    offsets: list[int]
    damaged: list[int]


def mask(crc: _Crc) -> _Crc:
    """Convert CRC-32C values, an int or uint32 [n], to the form in which TFRecord files store them."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1 << 12)
def frame_head(length: int) -> bytes:
    """Return the 12 bytes that precede `length` bytes of data."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", mask(google_crc32c.value(packed)))


def records(path: str, block: int = 1 << 20) -> Iterator[Chunk]:
    """Read a file in chunks.

    Args:
      path: Local or remote path. The members of a gzip file are read as a single stream.
      block: Bytes to read at a time. About three blocks, or three times the longest record, are in memory. Blocks that
        are larger than the processor's caches are slower.

    Yields:
      Chunks with at least one record. An empty file does not yield chunks.

    Raises:
      InputError: If a length does not match its checksum or exceeds 2 GiB, the file ends inside a record, or the gzip
        stream is damaged.
      OSError: If the file cannot be opened or read.
    """
    with open_binary(path) as file:
        head = file.read(HEAD)
        file.seek(0)
        # A first record of 559,903 bytes also starts with gzip's magic, but the checksum of its length matches.
        is_gzip = head.startswith(GZIP_MAGIC) and _length(head) is None
        yield from records_of(path, decompress(path, file) if is_gzip else file, block)


def records_of(path: str, stream: IO[bytes], block: int = 1 << 20) -> Iterator[Chunk]:
    """Read the decompressed content of a file; see `records`."""
    buffer, start, size = b"", 0, HEAD + FOOT
    # The buffer at most doubles per step, so a wrong length does not allocate more than the file can fill.
    while data := stream.read(min(max(size - len(buffer), block), max(len(buffer), block))):
        buffer += data
        ends, size = _record_ends(path, start, buffer)
        if len(ends) > 1:
            yield _verify(start, buffer, ends)
            buffer, start = buffer[ends[-1] :], start + ends[-1]
    if buffer:
        raise _unreadable(path, start, f"a record of {size} bytes or more", f"{len(buffer)}: the file is cut off")


def _record_ends(path: str, start: int, buffer: bytes) -> tuple[list[int], int]:
    """Return 0 and the ends of all complete records in the buffer, and the minimum size of the next record."""
    at, ends, available = 0, [0], len(buffer)
    while available - at >= HEAD:
        head = buffer[at : at + HEAD]
        length = _length(head)
        if length is None:
            raise _unreadable(path, start + at, "a length that matches its checksum", f"the bytes {head.hex()}")
        if length > _MAX_LENGTH:
            raise _unreadable(path, start + at, f"at most {_MAX_LENGTH} bytes of data", f"a length of {length}")
        end = at + HEAD + length + FOOT
        if end > available:
            return ends, end - at
        ends.append(end)
        at = end
    return ends, HEAD + FOOT


def _verify(start: int, buffer: bytes, ends: list[int]) -> Chunk:
    """Verify the checksums of the records in a buffer, whose offset in the file is `start`."""
    data = [buffer[begin + HEAD : end - FOOT] for begin, end in itertools.pairwise(ends)]
    computed = mask(np.fromiter(map(google_crc32c.value, data), np.uint32, len(data)))
    # View the buffer as overlapping integers of four bytes, one per byte of the buffer; shape [len(buffer) - 3].
    words: npt.NDArray[np.uint32] = np.ndarray((len(buffer) - 3,), "<u4", buffer, 0, (1,))
    stored = words[np.array(ends[1:]) - FOOT]
    offsets = [start + begin for begin in ends[:-1]]
    sound = (computed == stored).tolist()
    if all(sound):
        return Chunk(data, offsets, [])
    damaged = [offset for offset, matches in zip(offsets, sound, strict=True) if not matches]
    return Chunk(list(itertools.compress(data, sound)), list(itertools.compress(offsets, sound)), damaged)


@functools.lru_cache(maxsize=1 << 12)
def _length(head: bytes) -> int | None:
    """Return the length of the data that follows these 12 bytes; None if there are fewer, or the checksum is wrong."""
    length = int.from_bytes(head[:8], "little")
    return length if frame_head(length) == head else None


def _unreadable(path: str, offset: int, expected: str, received: str) -> InputError:
    return InputError(
        f"{path}, offset {offset}: expected {expected}, received {received}",
        "fetch or write the file again, or remove it from data.path",
    )
