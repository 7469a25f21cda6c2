"""Read TFRecord files of tf.Examples, whose records are passed on unchanged, or of tf.SequenceExamples.

The context features and the feature lists of a SequenceExample become columns. A feature list has one value per step,
so it becomes a list column, like a feature of a tf.Example with several values.
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
"""Name of the decoder's column with all feature lists."""


class ExampleReader:
    """Reads TFRecord files.

    Args:
      config: Section `data.tfrecord` of the config, with the type of the records.
    """

    def __init__(self, config: TfrecordConfig) -> None:
        self._payload = config.payload
        self.properties = ReaderProperties(position_unit="offset")

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the whole file. The caller only reads its first block."""
        return FileRange(path, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the file as a single range, because the start of a record is only known from the record before it."""
        return [self.first_range(path, split)]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a file, with their features as list columns.

        Raises:
          InputError: If a feature has several types, a feature list has the name of a context feature, or
            `tfrecord.records` raises it.
        """
        decoder = _create_decoder(self._payload)
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
        # Offsets count from the start of the file, so the range does not shift the positions of later ranges.
        row_log.add_range(file_range, rows, 0)

    def _decode(
        self, decoder: Any, records: list[bytes], offsets: list[int], file_range: FileRange
    ) -> tuple[Block | None, dict[int, str]]:
        """Return the decoded rows, and the reason for every record that could not be decoded, by its index."""
        bad: dict[int, str] = {}
        columns = _try_decode(decoder, records)
        if columns is None:
            bad = _find_unreadable(decoder, records, self._payload)
            columns = _try_decode(decoder, _remove(records, bad))
        if columns is None:
            raise InputError(
                f"{file_range.path}: a feature has different types in different records",
                "write each feature with one type",
            )
        if self._payload == "sequence_example":
            if uneven := _find_uneven(columns, file_range.path):
                numbers = _remove(range(len(records)), bad)
                bad |= {numbers[at]: reason for at, reason in uneven.items()}
                columns = _try_decode(decoder, _remove(records, bad))
            columns = _flatten(columns)
        if bad:
            records, offsets = _remove(records, bad), _remove(offsets, bad)
        if not records:
            return None, bad
        # SequenceExamples are encoded again, as Examples.
        serialized = pa.array(records, pa.binary()) if self._payload == "example" else None
        return Block(columns, (BlockSource(file_range, len(records), offsets.__getitem__),), serialized), bad


_NAMES = {"example": "tf.Example", "sequence_example": "tf.SequenceExample"}


def names(path: str, config: TfrecordConfig) -> list[str]:
    """Return the names of the features in the first records of a file.

    Raises:
      InputError: If the file lacks records, the first records have another type, or `tfrecord.records` raises it.
    """
    for records, _, _ in tfrecord.records(path, 1 << 16):
        if records:
            decoder = _create_decoder(config.payload)
            batch = _try_decode(decoder, records[:1000])
            if batch is None:
                # One readable record is enough here. The reader reports the others as bad rows.
                batches = (_try_decode(decoder, [record]) for record in records)
                batch = next((batch for batch in batches if batch is not None), None)
            if batch is None:
                raise InputError(
                    f"{path}: expected serialized {_NAMES[config.payload]}s, received other records",
                    "set data.tfrecord.payload to the type of the records",
                )
            return sorted({name for name in batch.schema.names if name != _SEQUENCE} | set(_read_lists(batch)))
    raise InputError(f"{path} has no rows: it does not contain records", "write it again, or remove it")


def _create_decoder(payload: str) -> Any:
    # The coders import TensorFlow, which other formats do not need.
    from tfx_bsl.coders import example_coder, sequence_example_coder

    if payload == "example":
        return example_coder.ExamplesToRecordBatchDecoder()
    return sequence_example_coder.SequenceExamplesToRecordBatchDecoder(_SEQUENCE)


def _try_decode(decoder: Any, records: list[bytes]) -> pa.RecordBatch | None:
    try:
        return decoder.DecodeBatch(records)
    except (RuntimeError, ValueError):
        return None


def _find_unreadable(decoder: Any, records: list[bytes], payload: str) -> dict[int, str]:
    """Return the records that are not messages of the payload, as index → reason."""
    return {
        at: f"expected a serialized {_NAMES[payload]}, received {len(record)} other bytes"
        for at, record in enumerate(records)
        if _try_decode(decoder, [record]) is None
    }


def _remove(values: Sequence[_Value], bad: Collection[int]) -> list[_Value]:
    return [value for at, value in enumerate(values) if at not in bad]


def _read_lists(batch: pa.RecordBatch) -> dict[str, pa.LargeListArray]:
    """Return the feature lists by name. A row is a list of steps, and a step is a list of values."""
    at = batch.schema.get_field_index(_SEQUENCE)
    if at < 0:
        return {}
    struct = batch.column(at)
    return {struct.type.field(number).name: struct.field(number) for number in range(struct.type.num_fields)}


def _find_uneven(batch: pa.RecordBatch, path: str) -> dict[int, str]:
    """Return the rows with a step that does not have exactly one value, as index → reason.

    Raises:
      InputError: If a feature list has the name of a context feature.
    """
    uneven: dict[int, str] = {}
    for name, steps in _read_lists(batch).items():
        if batch.schema.get_field_index(name) >= 0:
            raise InputError(f"{path}: {name!r} is both a context feature and a feature list", "rename one of them")
        counts = pc.fill_null(steps.flatten().value_lengths(), 0)
        rows = pc.filter(pc.list_parent_indices(steps), pc.not_equal(counts, 1)).to_pylist()
        reason = f"expected one value in each step of the feature list {name!r}, received another number"
        uneven |= dict.fromkeys(rows, reason)
    return uneven


def _flatten(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the context features and the values of the feature lists, as list columns."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names) if name != _SEQUENCE}
    for name, steps in _read_lists(batch).items():
        # Every step has one value, so the offsets of the steps are the offsets of the values. A row without the feature
        # list is null.
        absent = pa.concat_arrays([steps.is_null(), pa.array([False])]).to_numpy(zero_copy_only=False)
        offsets = pa.array(steps.offsets.to_numpy(), mask=absent)
        columns[name] = pa.LargeListArray.from_arrays(offsets, steps.values.flatten())
    return pa.RecordBatch.from_pydict(columns)
