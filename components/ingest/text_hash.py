"""CRC-32 of texts, many at a time.

A CRC is linear: it is the exclusive or of the remainders of its bytes, each in its place, and of the CRC of as many
zero bytes. So texts of one length need a table for each place, and no loop over the bits.

Source: R. N. Williams, A painless guide to CRC error detection algorithms, 1993.
"""

from __future__ import annotations

import functools
import zlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_POLYNOMIAL = 0xEDB88320
_SHORT = 16
"""Mean length in bytes up to which all texts are hashed. Longer ones repeat more often: each distinct one is hashed."""
_LONGEST = 64
"""Length in bytes from which a text is hashed by itself."""

U64: TypeAlias = npt.NDArray[np.uint64]


def crc32(texts: pa.Array) -> U64:
    """Compute the CRC-32 of each text, as zlib does.

    Args:
      texts: Binary or string; for missing values the result is undefined.

    Returns:
      The values; uint64 [rows].
    """
    if pa.types.is_binary(texts.type) or pa.types.is_string(texts.type):
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        if len(texts) and int(offsets[-1] - offsets[0]) <= _SHORT * len(texts):
            return _of_short(offsets.astype(np.int64), np.frombuffer(texts.buffers()[2] or b"", np.uint8))
    coded = texts.dictionary_encode()
    distinct = np.fromiter(map(zlib.crc32, coded.dictionary.to_pylist()), np.uint64, len(coded.dictionary))
    hashes: U64 = distinct[np.asarray(coded.indices.fill_null(0))] if len(distinct) else np.zeros(len(texts), np.uint64)
    return hashes


def _of_short(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> U64:
    lengths = np.diff(offsets)
    hashes = np.zeros(len(lengths), np.uint32)
    for length in np.flatnonzero(np.bincount(np.minimum(lengths, _LONGEST))).tolist():
        if length == _LONGEST:
            for row in np.flatnonzero(lengths >= _LONGEST).tolist():
                hashes[row] = zlib.crc32(data[offsets[row] : offsets[row + 1]])
            continue
        rows = np.flatnonzero(lengths == length)
        starts = offsets[rows]
        # Texts of one length are a matrix already.
        matrix = data[offsets[0] : offsets[-1]].reshape(len(rows), length) if len(rows) == len(lengths) else None
        value = np.full(len(rows), zlib.crc32(bytes(length)), np.uint32)
        for place in range(length):
            bytes_there = data[starts + place] if matrix is None else matrix[:, place]
            value ^= _table(length - 1 - place)[bytes_there]
        hashes[rows] = value
    return hashes.astype(np.uint64)


@functools.cache
def _table(following: int) -> npt.NDArray[np.uint32]:
    """Return the remainder of each byte that is followed by so many others; uint32 [256]."""
    remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8 * (following + 1)):
        remainders = np.where(remainders & 1, (remainders >> 1) ^ np.uint32(_POLYNOMIAL), remainders >> 1)
    return remainders
