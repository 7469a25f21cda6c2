"""Reads TFRecord files of tf.Examples, whose records are passed on as they are, or of tf.SequenceExamples.

Of a SequenceExample the features of the context and the feature lists become columns. A feature list has one value in
each step, so it is a list column as that of a tf.Example.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from components.base.errors import InputError
from components.data import tfrecord
from components.ingest.blocks import BadRow, Block, BlockSource, FileRange, ReaderProperties, RowLog
from components.ingest.config import TfrecordConfig

_Value = TypeVar("_Value")
_SEQUENCE = "sequence features"
"""The decoder's column of all feature lists."""


class ExampleReader:
    """Reads files of records.

    Args:
      config: The type of the records.
    """

    def __init__(self, config: TfrecordConfig) -> None:
        self._payload = config.payload
        self.properties = ReaderProperties(position_unit="offset")

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the whole file; the caller reads only its first block."""
        return FileRange(path, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the file as its only range: where a record starts is only known from the record before it."""
        return [self.first_range(path, split)]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a file, with their features as list columns.

        Raises:
          InputError: A feature has several types, a feature list has the name of a feature of the context, or see
            `tfrecord.records`.
        """
        decoder = _decoder(self._payload)
        rows = 0
        for records, offsets, damaged in tfrecord.records(file_range.path):
            rows += len(records) + len(damaged)
            for offset in damaged:
                row_log.add_bad_row(
                    BadRow(file_range.path, file_range.number, offset, "the data do not match their checksum")
                )
            block, bad = self._decode(decoder, records, offsets, file_range)
            for at, reason in sorted(bad.items()):
                row_log.add_bad_row(BadRow(file_range.path, file_range.number, offsets[at], reason))
            if block is not None:
                yield block
        # Offsets are counted from the start of the file.
        row_log.add_range(file_range, rows, 0)

    def _decode(
        self, decoder: Any, records: list[bytes], offsets: list[int], file_range: FileRange
    ) -> tuple[Block | None, dict[int, str]]:
        """Return the rows, and why each of the other records is none."""
        bad: dict[int, str] = {}
        columns = _decoded(decoder, records)
        if columns is None:
            bad = _unreadable(decoder, records, self._payload)
            columns = _decoded(decoder, _without(records, bad))
        if columns is None:
            raise InputError(
                f"{file_range.path}: a feature holds values of one type in some records and of another in others",
                "write each feature with one type",
            )
        if self._payload == "sequence_example":
            if uneven := _uneven(columns, file_range.path):
                numbers = _without(range(len(records)), bad)
                bad |= {numbers[at]: reason for at, reason in uneven.items()}
                columns = _decoded(decoder, _without(records, bad))
            columns = _flattened(columns)
        if bad:
            records, offsets = _without(records, bad), _without(offsets, bad)
        if not records:
            return None, bad
        # SequenceExamples are written again, as Examples.
        serialized = pa.array(records, pa.binary()) if self._payload == "example" else None
        return Block(columns, (BlockSource(file_range, len(records), offsets.__getitem__),), serialized), bad


_NAMES = {"example": "tf.Example", "sequence_example": "tf.SequenceExample"}


def names(path: str, config: TfrecordConfig) -> list[str]:
    """Return the names of the features in the first records of a file.

    Raises:
      InputError: The file holds no record, the first records are of another type, or see `tfrecord.records`.
    """
    for records, _, _ in tfrecord.records(path, 1 << 16):
        if records:
            decoder = _decoder(config.payload)
            batch = _decoded(decoder, records[:1000])
            if batch is None:
                # The reader reports records that are not Examples; here one that is suffices.
                batch = next((one for record in records if (one := _decoded(decoder, [record])) is not None), None)
            if batch is None:
                raise InputError(
                    f"{path}: expected serialized {_NAMES[config.payload]}s, received other records",
                    "set data.tfrecord.payload to the type of the records",
                )
            return sorted({name for name in batch.schema.names if name != _SEQUENCE} | set(_lists(batch)))
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


def _unreadable(decoder: Any, records: list[bytes], payload: str) -> dict[int, str]:
    """Why records are no messages of the payload."""
    return {
        at: f"expected a serialized {_NAMES[payload]}, received {len(record)} other bytes"
        for at, record in enumerate(records)
        if _decoded(decoder, [record]) is None
    }


def _without(values: Sequence[_Value], bad: Collection[int]) -> list[_Value]:
    return [each for at, each in enumerate(values) if at not in bad]


def _lists(batch: pa.RecordBatch) -> dict[str, pa.LargeListArray]:
    """Return the feature lists by name: a list of steps for each row, and in each step a list of values."""
    at = batch.schema.get_field_index(_SEQUENCE)
    if at < 0:
        return {}
    struct = batch.column(at)
    return {struct.type.field(number).name: struct.field(number) for number in range(struct.type.num_fields)}


def _uneven(batch: pa.RecordBatch, path: str) -> dict[int, str]:
    """Return the rows with a step that has no value or several.

    Raises:
      InputError: A feature list has the name of a feature of the context.
    """
    found: dict[int, str] = {}
    for name, steps in _lists(batch).items():
        if batch.schema.get_field_index(name) >= 0:
            raise InputError(
                f"{path}: {name!r} is both a feature of the context and a feature list", "rename one of them"
            )
        counts = pc.fill_null(steps.flatten().value_lengths(), 0)
        rows = pc.filter(pc.list_parent_indices(steps), pc.not_equal(counts, 1)).to_pylist()
        reason = f"expected one value in each step of the feature list {name!r}, received another number"
        found |= dict.fromkeys(rows, reason)
    return found


def _flattened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the features of the context and the values of the feature lists, as list columns."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names) if name != _SEQUENCE}
    for name, steps in _lists(batch).items():
        # The offsets are those of the steps, each of which has one value; a row without the list is null.
        absent = pa.concat_arrays([steps.is_null(), pa.array([False])]).to_numpy(zero_copy_only=False)
        offsets = pa.array(steps.offsets.to_numpy(), mask=absent)
        columns[name] = pa.LargeListArray.from_arrays(offsets, steps.values.flatten())
    return pa.RecordBatch.from_pydict(columns)
