"""Shares rows out between splits by a hash of what is in them.

The same row lands in the same split whatever the order of files, the size of blocks or the number of workers, and
equal rows land together. The hash is made of CRC-32 and an integer mixer, both fixed for all time, column by column.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

U64: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
"""Hashes of rows; shape [rows]."""
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"
"""Numbers of splits; shape [rows]."""


def assign(batch: pa.RecordBatch, buckets: Sequence[int], by: Iterable[str] | None = None) -> Places:
    """The split of each row.

    Args:
      batch: columns of int64, float32, binary or null.
      buckets: the number of hash buckets of each split.
      by: the columns that decide; all of them if not given.

    Returns:
      For each row the place of its split in `buckets`; shape [rows].
    """
    bounds: U64 = np.cumsum(buckets).astype(np.uint64)
    bucket: U64 = hash_rows(batch, by) % bounds[-1]
    places: Places = np.asarray(np.searchsorted(bounds, bucket, side="right"))
    return places


def hash_rows(batch: pa.RecordBatch, by: Iterable[str] | None = None) -> U64:
    """A 64-bit hash of each row; missing values add nothing, so a column that is empty throughout changes no hash."""
    total: U64 = np.zeros(batch.num_rows, np.uint64)
    for name in batch.schema.names if by is None else by:
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count == len(column):
            continue
        hashes = _mix(_hash_values(column) ^ np.uint64(zlib.crc32(name.encode()) << 32))
        if column.null_count:
            hashes[np.asarray(column.is_null())] = 0
        # A sum, so that the order of the columns does not matter.
        total += hashes
    return _mix(total)


def _hash_values(column: pa.Array) -> U64:
    hashes: U64
    if pa.types.is_integer(column.type):
        hashes = np.asarray(column.fill_null(0)).view(np.uint64)
    elif pa.types.is_floating(column.type):
        values = np.asarray(column.fill_null(0.0)) + np.float32(0.0)  # the sum makes -0.0 the same as 0.0
        values[np.isnan(values)] = np.nan  # a NaN has many bit patterns
        hashes = values.view(np.uint32).astype(np.uint64)
    else:
        coded = column.dictionary_encode()
        distinct = np.fromiter(map(zlib.crc32, coded.dictionary.to_pylist()), np.uint64, len(coded.dictionary))
        hashes = distinct[np.asarray(coded.indices.fill_null(0))]
    return hashes


def _mix(values: U64) -> U64:
    """Spreads every bit over all 64 (the finisher of SplitMix64), so that near values get unrelated hashes."""
    mixed: U64 = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
