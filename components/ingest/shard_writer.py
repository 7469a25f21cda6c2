"""Write rows to the files of their splits: Parquet files, or gzip-compressed TFRecord files."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.data import file_io
from components.data.examples import ParquetWriter, to_lists
from components.data.tfrecord_writer import TfrecordWriter
from components.ingest.split_assignment import LEFT_OUT, SplitIndices

_SHARD = 64 << 20
"""Bytes of rows, before compression, after which the next file begins: enough to read at full speed, and few enough
that several workers can read in parallel."""


@dataclass(frozen=True, order=True)
class Shard:
    """A file of rows of one split, not yet under its final name.

    Attributes:
      split: Name of the split.
      order: Sort key for the final numbers of a split's shards: file and range of the first row, and a counter.
      path: Temporary path of the file.
      rows: Number of rows in the file.
      images: Temporary path of the facts about the rows' images, see `image_facts`; "" without images.
    """

    split: str
    order: tuple[str, int, int]
    path: str
    rows: int
    images: str = ""


class Writer:
    """Writes rows to the files of their splits; call `close` for the list of files.

    Args:
      folder: Folder of the files. Their names are unique among all writers.
      splits: Names of the splits, in the order of their indices.
    """

    def __init__(self, folder: str, splits: Iterable[str]) -> None:
        self._folder, self._splits = folder, list(splits)
        self._name = uuid.uuid4().hex
        self._open: dict[str, _Open] = {}
        self._types: dict[str, dict[str, pa.DataType]] = {}
        self._written: list[Shard] = []

    def write(
        self,
        rows: pa.Array | pa.RecordBatch,
        indices: SplitIndices,
        order: tuple[str, int],
        images: pa.RecordBatch | None = None,
    ) -> None:
        """Write rows.

        Args:
          rows: For Parquet, columns of int64, float32, binary or null, or of lists of these. For TFRecords, framed
            records, binary of shape [rows]; see `tfrecord_writer`. All calls of a writer use the same form.
          indices: Index of every row's split, or LEFT_OUT; shape [rows].
          order: File and range of the first row.
          images: Facts about the images of the rows. Either all calls of a writer pass them, or no call does.
        """
        first, last = int(indices.min(initial=0)), int(indices.max(initial=LEFT_OUT))
        for index in range(max(first, 0), last + 1):
            chosen = np.flatnonzero(indices == index)
            if len(chosen):
                split_rows, split_images = rows, images
                if len(chosen) < len(indices):
                    split_rows = pc.take(rows, pa.array(chosen))
                    split_images = None if images is None else pc.take(images, pa.array(chosen))
                self._append(self._splits[index], split_rows, order, split_images)

    def end_shards(self) -> None:
        """Close the files. Rows that are written later go to new files, which do not depend on the rows so far."""
        for split in list(self._open):
            self._complete(split)
        self._types.clear()

    def close(self) -> list[Shard]:
        """Close the files and return them."""
        self.end_shards()
        return self._written

    def discard(self) -> None:
        """Delete the files."""
        for shard in self.close():
            for path in filter(None, (shard.path, shard.images)):
                file_io.remove(path)
        self._written = []

    def _append(
        self, split: str, rows: pa.Array | pa.RecordBatch, order: tuple[str, int], images: pa.RecordBatch | None
    ) -> None:
        file = self._open.get(split)
        if isinstance(rows, pa.RecordBatch):
            rows = _with_known_types(to_lists(rows), self._types.setdefault(split, {}))
            # A column of nulls gets a type with its first value. Begin the next file there, which happens at most twice
            # per column.
            if file and file.schema != rows.schema:
                self._complete(split)
                file = None
        if file is None:
            file = self._open[split] = self._create(split, rows, order, images)
        file.write(rows, images)
        if file.size >= _SHARD:
            self._complete(split)

    def _create(
        self, split: str, rows: pa.Array | pa.RecordBatch, order: tuple[str, int], images: pa.RecordBatch | None
    ) -> _Open:
        number = len(self._written) + len(self._open)
        path = file_io.join(self._folder, f"{split}-{self._name}-{number}")
        schema = rows.schema if isinstance(rows, pa.RecordBatch) else None
        images_schema = None if images is None else images.schema
        return _Open(
            Shard(split, (*order, number), path, 0, "" if images is None else f"{path}-images"), schema, images_schema
        )

    def _complete(self, split: str) -> None:
        self._written.append(self._open.pop(split).close())


class _Open:
    """A file that is being written.

    Args:
      shard: Split, order and paths of the file.
      schema: Schema of the columns. If None, the file is a TFRecord file.
      images: Schema of the facts about images. If None, there are no images.
    """

    def __init__(self, shard: Shard, schema: pa.Schema | None, images: pa.Schema | None) -> None:
        self.schema, self._shard, self._rows = schema, shard, 0
        self._file: ParquetWriter | TfrecordWriter
        self._file = TfrecordWriter(shard.path) if schema is None else ParquetWriter(shard.path, schema)
        self._images = None if images is None else ParquetWriter(shard.images, images)

    @property
    def size(self) -> int:
        """Bytes of the rows before compression."""
        return self._file.bytes

    def write(self, rows: pa.Array | pa.RecordBatch, images: pa.RecordBatch | None) -> None:
        """Append rows, and the facts about their images."""
        self._file.write(rows)
        if self._images and images is not None:
            self._images.write(images)
        self._rows += len(rows)

    def close(self) -> Shard:
        """Complete the file and return the shard with the number of its rows."""
        self._file.close()
        if self._images:
            self._images.close()
        return dataclasses.replace(self._shard, rows=self._rows)


def _with_known_types(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """Return a batch with all columns so far, sorted by name as in tf.Examples, and update the types of the columns.

    A column has the type of its values, or the type null if all values are missing.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        known = types.setdefault(name, column.type)
        if column.type != known and (pa.types.is_null(known) or _has_values(column)):
            types[name] = column.type
    schema = pa.schema(sorted(types.items()))
    return pa.RecordBatch.from_arrays([_cast_column(batch, field) for field in schema], schema=schema)


def _has_values(column: pa.Array) -> bool:
    return not pa.types.is_null(column.type) and len(column.flatten()) > 0


def _cast_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    return column if column.type == field.type else column.cast(field.type)
