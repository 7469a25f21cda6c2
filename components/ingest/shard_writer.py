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
import numpy.typing as npt
import pyarrow as pa
from google_crc32c import value as crc32c
from isal import isal_zlib

from components.data import example_encoder, file_io
from components.data.tfrecord import FOOT, HEAD, frame_head, mask
from components.ingest.split_assignment import LEFT_OUT, SplitIndices

CHECKSUM_PLACEHOLDER = bytes(FOOT)
"""The bytes that follow a record until its checksum is computed."""
_GZIP_LEVEL = 1
_SHARD = 64 << 20
"""Bytes of records (not compressed) after which the next file begins: enough to read at full speed, and few enough that
several workers can read in parallel."""


@dataclass(frozen=True, order=True)
class Shard:
    """A file of records of one split, not yet under its final name.

    Attributes:
      split: the name of the split.
      order: the sort key for the final numbers of a split's shards: the file and range of the first row, and a counter.
      path: the temporary path.
      rows: records in the file.
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
    """Writes records to the files of their splits; call `close` for the list of files.

    Args:
      folder: where the files go, under names that no other writer uses.
      splits: the names of the splits, in the order of their indices.
    """

    def __init__(self, folder: str, splits: Iterable[str]) -> None:
        self._folder, self._splits = folder, list(splits)
        self._name = uuid.uuid4().hex
        self._open: dict[str, _File] = {}
        self._written: list[Shard] = []

    def write(self, records: pa.Array, indices: SplitIndices, order: tuple[str, int]) -> None:
        """Writes records.

        Args:
          records: framed records, see `with_frames`; binary [records].
          indices: the index of the split of each record, or LEFT_OUT; shape [records].
          order: the file and the range that the first record comes from.
        """
        first, last = int(indices.min(initial=0)), int(indices.max(initial=LEFT_OUT))
        for index in range(max(first, 0), last + 1):
            chosen = np.flatnonzero(indices == index)
            if len(chosen):
                part = records if len(chosen) == len(records) else records.take(pa.array(chosen))
                self._append(self._splits[index], part, order)

    def close(self) -> list[Shard]:
        """Closes the files and returns them."""
        for split in list(self._open):
            self._complete(split)
        return self._written

    def discard(self) -> None:
        """Deletes the files."""
        for shard in self.close():
            file_io.remove(shard.path)
        self._written = []

    def _append(self, split: str, records: pa.Array, order: tuple[str, int]) -> None:
        file = self._open.get(split)
        if file is None:
            file = self._open[split] = self._create(split, order)
        data = _with_checksums(records)
        file.sink.write(file.packer.compress(data))
        file.rows += len(records)
        file.size += len(data)
        if file.size >= _SHARD:
            self._complete(split)

    def _create(self, split: str, order: tuple[str, int]) -> _File:
        number = len(self._written) + len(self._open)
        path = file_io.join(self._folder, f"{split}-{self._name}-{number}.gz")
        return _File((*order, number), path, file_io.create(path))

    def _complete(self, split: str) -> None:
        file = self._open.pop(split)
        with file.sink:
            file.sink.write(file.packer.flush())
        self._written.append(Shard(split, file.order, file.path, file.rows))


def with_frames(records: pa.Array) -> pa.Array:
    """Returns serialized records (binary), each after its head and before a placeholder for its checksum."""
    head = example_encoder.by_length(example_encoder.lengths(records), frame_head)
    return example_encoder.join([head, records, pa.scalar(CHECKSUM_PLACEHOLDER, pa.binary())], len(records))


def _with_checksums(records: pa.Array) -> npt.NDArray[np.uint8]:
    """Returns the bytes of framed records with their checksums filled in; shape [bytes]."""
    ends = example_encoder.offsets_of(records).astype(np.int64)
    data = records.buffers()[2].to_pybytes()
    starts, stops = (ends[:-1] + HEAD).tolist(), (ends[1:] - FOOT).tolist()
    sums = [crc32c(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    checks = np.asarray(mask(np.array(sums, "<u4"))).view(np.uint8).reshape(-1, FOOT)
    filled: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8).copy()
    filled[(ends[1:] - FOOT)[:, None] + np.arange(FOOT)] = checks
    return filled[ends[0] : ends[-1]]
