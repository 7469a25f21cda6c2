"""Compute the CRC-32 of many texts at a time.

A CRC is linear: the CRC of a text is the exclusive or of the remainders of its bytes, which depend on their place in
the text, and of the CRC of the same number of zero bytes. So texts of the same length need one table per place instead
of a loop over bits.

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
"""Mean length in bytes up to which all texts are hashed. For longer texts, only the distinct texts are hashed."""
_LONGEST = 64
"""Length in bytes from which texts are hashed one by one."""

U64: TypeAlias = npt.NDArray[np.uint64]


def crc32(texts: pa.Array) -> U64:
    """Compute the CRC-32 of texts, as zlib does.

    Args:
      texts: Texts, binary or string. The hash of a missing value is undefined.

    Returns:
      The hashes, uint64 of shape [rows].
    """
    if pa.types.is_binary(texts.type) or pa.types.is_string(texts.type):
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        if len(texts) and int(offsets[-1] - offsets[0]) <= _SHORT * len(texts):
            return _hash_short(offsets.astype(np.int64), np.frombuffer(texts.buffers()[2] or b"", np.uint8))
    coded = texts.dictionary_encode()
    distinct = np.fromiter(map(zlib.crc32, coded.dictionary.to_pylist()), np.uint64, len(coded.dictionary))
    hashes: U64 = distinct[np.asarray(coded.indices.fill_null(0))] if len(distinct) else np.zeros(len(texts), np.uint64)
    return hashes


def _hash_short(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> U64:
    lengths = np.diff(offsets)
    hashes = np.zeros(len(lengths), np.uint32)
    for length in np.flatnonzero(np.bincount(np.minimum(lengths, _LONGEST))).tolist():
        if length == _LONGEST:
            for row in np.flatnonzero(lengths >= _LONGEST).tolist():
                hashes[row] = zlib.crc32(data[offsets[row] : offsets[row + 1]])
            continue
        rows = np.flatnonzero(lengths == length)
        starts = offsets[rows]
        # If all texts have the same length, the data is already a matrix.
        matrix = data[offsets[0] : offsets[-1]].reshape(len(rows), length) if len(rows) == len(lengths) else None
        value = np.full(len(rows), zlib.crc32(bytes(length)), np.uint32)
        for place in range(length):
            bytes_there = data[starts + place] if matrix is None else matrix[:, place]
            value ^= _table(length - 1 - place)[bytes_there]
        hashes[rows] = value
    return hashes.astype(np.uint64)


@functools.cache
def _table(following: int) -> npt.NDArray[np.uint32]:
    """Return the remainders of all bytes when `following` bytes follow; uint32 of shape [256]."""
    remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8 * (following + 1)):
        remainders = np.where(remainders & 1, (remainders >> 1) ^ np.uint32(_POLYNOMIAL), remainders >> 1)
    return remainders
