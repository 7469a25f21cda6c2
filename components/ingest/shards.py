"""Writes serialized records into gzip TFRecord files, several for each split.

The framing of a record is TensorFlow's (tensorflow/core/lib/io/record_writer): its length, a checksum of that, the
record, a checksum of that.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c
from isal import isal_zlib

from components.ingest import encode, source
from components.ingest.split import LEFT_OUT, Places
from components.ingest.tfrecord import FOOT, HEAD, frame_head, mask

ROOM = bytes(FOOT)
"""What stands behind a record until its checksum is known."""
_GZIP_LEVEL = 1
_SHARD = 64 << 20
"""Bytes of records (not compressed) after which a new file is begun: enough to read at full speed, and few enough that
several workers have something to share."""


@dataclass(frozen=True, order=True)
class Shard:
    """A file of records of one split, not yet under its final name.

    Attributes:
      split: the split.
      order: what the shards of a split are numbered by: where its first row came from.
      path: where it is.
      rows: how many records it holds.
    """

    split: str
    order: tuple[str, int, int]
    path: str
    rows: int


@dataclass
class _File:
    order: tuple[str, int, int]
    path: str
    sink: IO[bytes]
    packer: Any = field(default_factory=lambda: isal_zlib.compressobj(_GZIP_LEVEL, wbits=31))
    rows: int = 0
    size: int = 0


class Writer:
    """Writes records to the files of their splits; call `close` to get what was written.

    Args:
      folder: where the files go, under names that no other writer takes.
      splits: the names of the splits, in the order of their numbers.
    """

    def __init__(self, folder: str, splits: Iterable[str]) -> None:
        self._folder, self._splits = folder, list(splits)
        self._name = uuid.uuid4().hex
        self._open: dict[str, _File] = {}
        self._written: list[Shard] = []

    def write(self, records: pa.Array, places: Places, order: tuple[str, int]) -> None:
        """Writes records.

        Args:
          records: each between its head and room for its checksum, as `framed` makes them; binary.
          places: the number of the split of each record, or LEFT_OUT; shape [records].
          order: where the first record came from: a file, and a piece of it.
        """
        first, last = int(places.min(initial=0)), int(places.max(initial=LEFT_OUT))
        for place in range(max(first, 0), last + 1):
            chosen = np.flatnonzero(places == place)
            if len(chosen):
                part = records if len(chosen) == len(records) else records.take(pa.array(chosen))
                self._append(self._splits[place], part, order)

    def close(self) -> list[Shard]:
        """Completes the files."""
        for split in list(self._open):
            self._complete(split)
        return self._written

    def discard(self) -> None:
        """Deletes what was written."""
        for shard in self.close():
            source.remove(shard.path)
        self._written = []

    def _append(self, split: str, records: pa.Array, order: tuple[str, int]) -> None:
        file = self._open.get(split)
        if file is None:
            file = self._open[split] = self._create(split, order)
        data = _summed(records)
        file.sink.write(file.packer.compress(data))
        file.rows += len(records)
        file.size += len(data)
        if file.size >= _SHARD:
            self._complete(split)

    def _create(self, split: str, order: tuple[str, int]) -> _File:
        number = len(self._written) + len(self._open)
        path = source.join(self._folder, f"{split}-{self._name}-{number}.gz")
        return _File((*order, number), path, source.create(path))

    def _complete(self, split: str) -> None:
        file = self._open.pop(split)
        with file.sink:
            file.sink.write(file.packer.flush())
        self._written.append(Shard(split, file.order, file.path, file.rows))


def framed(records: pa.Array) -> pa.Array:
    """Serialized records (binary), each between its head and room for its checksum."""
    head = encode.by_length(encode.lengths(records), frame_head)
    return encode.join([head, records, pa.scalar(ROOM, pa.binary())], len(records))


def _summed(records: pa.Array) -> Any:
    """The bytes of framed records, with their checksums filled in."""
    ends = encode.offsets_of(records).astype(np.int64)
    data = records.buffers()[2].to_pybytes()
    starts, stops = (ends[:-1] + HEAD).tolist(), (ends[1:] - FOOT).tolist()
    sums = [crc32c(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    checks = np.asarray(mask(np.array(sums, "<u4"))).view(np.uint8).reshape(-1, FOOT)
    filled = np.frombuffer(data, np.uint8).copy()
    filled[(ends[1:] - FOOT)[:, None] + np.arange(FOOT)] = checks
    return filled[ends[0] : ends[-1]]
