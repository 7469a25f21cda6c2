"""Reads TFRecord files of tf.Examples or tf.SequenceExamples; the records themselves are passed on as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from components.data import tfrecord
from components.errors import InputError
from components.ingest.blocks import BadRow, Block, BlockSource, FileRange, ReaderProperties, RowLog
from components.ingest.config import TfrecordConfig

RECORD = "serialized record"
"""With SequenceExamples the column that holds the serialized record, whose hash assigns it to a split."""
_SEQUENCE = "sequence features"


class ExampleReader:
    """Reads files of records.

    Args:
      config: the type of the records.
    """

    def __init__(self, config: TfrecordConfig) -> None:
        self._payload = config.payload
        records = (RECORD,) if config.payload == "sequence_example" else ()
        self.properties = ReaderProperties(position_unit="offset", key_columns=records, hidden=records)

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Returns the whole file; the caller reads only its first block."""
        return FileRange(path, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Returns the file as its only range: where a record starts is only known from the record before it."""
        return [self.first_range(path, split)]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yields the records of a file, with their features (of SequenceExamples: the context) as list columns.

        Raises:
          InputError: a feature has several types, or see `tfrecord.records`.
        """
        decoder = _decoder(self._payload)
        rows = 0
        for records, offsets, damaged in tfrecord.records(file_range.path):
            rows += len(records) + len(damaged)
            for offset in damaged:
                row_log.add_bad_row(
                    BadRow(file_range.path, file_range.number, offset, "the data do not match their checksum")
                )
            block, unreadable = self._decode(decoder, records, offsets, file_range)
            for at in unreadable:
                reason = f"expected a serialized tf.{self._name}, received {len(records[at])} other bytes"
                row_log.add_bad_row(BadRow(file_range.path, file_range.number, offsets[at], reason))
            if block is not None:
                yield block
        # Offsets are counted from the start of the file.
        row_log.add_range(file_range, rows, 0)

    @property
    def _name(self) -> str:
        return "Example" if self._payload == "example" else "SequenceExample"

    def _decode(
        self, decoder: Any, records: list[bytes], offsets: list[int], file_range: FileRange
    ) -> tuple[Block | None, list[int]]:
        unreadable: list[int] = []
        columns = _decoded(decoder, records)
        if columns is None:
            unreadable = [at for at, record in enumerate(records) if _decoded(decoder, [record]) is None]
            bad = set(unreadable)
            offsets = [offset for at, offset in enumerate(offsets) if at not in bad]
            records = [record for at, record in enumerate(records) if at not in bad]
            columns = _decoded(decoder, records)
        if columns is None:
            raise InputError(
                f"{file_range.path}: a feature holds values of one type in some records and of another in others",
                "write each feature with one type",
            )
        if not records:
            return None, unreadable
        serialized = pa.array(records, pa.binary())
        names = [name for name in columns.schema.names if name != _SEQUENCE]
        arrays = [columns.column(columns.schema.get_field_index(name)) for name in names]
        if self._payload == "sequence_example":
            names, arrays = [*names, RECORD], [*arrays, serialized]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return Block(batch, (BlockSource(file_range, len(records), offsets.__getitem__),), serialized), unreadable


def names(path: str, config: TfrecordConfig) -> list[str]:
    """Returns the names of the features in the first records of a file.

    Raises:
      InputError: the file holds no record, the first records are of another type, or see `tfrecord.records`.
    """
    for records, _, _ in tfrecord.records(path, 1 << 16):
        if records:
            decoder = _decoder(config.payload)
            batch = _decoded(decoder, records[:1000])
            if batch is None:
                # The reader reports records that are not Examples; here one that is suffices.
                batch = next((one for record in records if (one := _decoded(decoder, [record])) is not None), None)
            if batch is None:
                kind = "Example" if config.payload == "example" else "SequenceExample"
                raise InputError(
                    f"{path}: expected serialized tf.{kind}s, received other records",
                    "set data.tfrecord.payload to the type of the records",
                )
            return sorted(name for name in batch.schema.names if name != _SEQUENCE)
    raise InputError(f"{path} has no rows: it holds no record", "write it again, or remove it")


def _decoder(payload: str) -> Any:
    # Imported here, because it imports TensorFlow, which other formats do not need.
    from tfx_bsl.coders import example_coder, sequence_example_coder

    if payload == "example":
        return example_coder.ExamplesToRecordBatchDecoder()
    return sequence_example_coder.SequenceExamplesToRecordBatchDecoder(_SEQUENCE)


def _decoded(decoder: Any, records: list[bytes]) -> pa.RecordBatch | None:
    try:
        return decoder.DecodeBatch(records)
    except (RuntimeError, ValueError):
        return None
