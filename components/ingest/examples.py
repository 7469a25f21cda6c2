"""Reads TFRecord files of tf.Examples or tf.SequenceExamples; the records themselves are passed on as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from components.errors import InputError
from components.ingest import tfrecord
from components.ingest.config import TfrecordConfig
from components.ingest.rows import BadRow, Block, Ledger, Piece, Segment, Traits

RECORD = "serialized record"
"""With SequenceExamples the column that holds the whole record: it decides about the split."""
_SEQUENCE = "sequence features"


class ExampleReader:
    """Reads files of records.

    Args:
      config: what the records are.
    """

    def __init__(self, config: TfrecordConfig) -> None:
        self._payload = config.payload
        records = (RECORD,) if config.payload == "sequence_example" else ()
        self.traits = Traits(place_is="offset", decisive=records, hidden=records)

    def head(self, path: str, split: str | None) -> Piece:
        """The file, of which the first chunk will do."""
        return Piece(path, split=split)

    def cut(self, path: str, split: str | None) -> list[Piece]:
        """The one piece that a file is: where a record starts is only known from the one before it."""
        return [self.head(path, split)]

    def read(self, piece: Piece, ledger: Ledger) -> Iterator[Block]:
        """The records of a file; of each, the features as list columns (of SequenceExamples: those of the context)."""
        decoder = _decoder(self._payload)
        rows = 0
        for records, offsets, damages in tfrecord.records(piece.path):
            rows += len(records) + len(damages)
            for damage in damages:
                ledger.bad(BadRow(piece.path, piece.number, damage.offset, damage.reason))
            block, unreadable = self._decode(decoder, records, offsets, piece)
            for at in unreadable:
                reason = f"expected a serialized tf.{self._name}, received {len(records[at])} other bytes"
                ledger.bad(BadRow(piece.path, piece.number, offsets[at], reason))
            if block is not None:
                yield block
        # Offsets are counted from the start of the file.
        ledger.read(piece, rows, 0)

    @property
    def _name(self) -> str:
        return "Example" if self._payload == "example" else "SequenceExample"

    def _decode(
        self, decoder: Any, records: list[bytes], offsets: list[int], piece: Piece
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
                f"{piece.path}: a feature holds values of one type in some records and of another in others",
                "write each feature with one type",
            )
        if not records:
            return None, unreadable
        serialized = pa.array(records, pa.binary())
        names = [name for name in columns.schema.names if name != _SEQUENCE]
        arrays = [columns.column(columns.schema.get_field_index(name)) for name in names]
        if self._payload == "sequence_example":
            names, arrays = [*names, RECORD], [*arrays, serialized]
        taken = pa.RecordBatch.from_arrays(arrays, names)
        return Block(taken, (Segment(piece, len(records), offsets.__getitem__),), serialized), unreadable


def names(path: str, config: TfrecordConfig) -> list[str]:
    """The names of the features in the first records of a file.

    Raises:
      InputError: the file holds no record, or the first ones are of another kind.
    """
    for records, _, _ in tfrecord.records(path, 1 << 16):
        if records:
            decoder = _decoder(config.payload)
            found = _decoded(decoder, records[:1000])
            if found is None:
                # One of them may be damaged, which is the reader's to tell.
                found = next((one for record in records if (one := _decoded(decoder, [record])) is not None), None)
            if found is None:
                kind = "Example" if config.payload == "example" else "SequenceExample"
                raise InputError(
                    f"{path}: the first records are no serialized tf.{kind}s",
                    "set data.tfrecord.payload to what they are",
                )
            return sorted(name for name in found.schema.names if name != _SEQUENCE)
    raise InputError(f"{path} has no rows: it holds no record", "write it again, or leave it out")


def _decoder(payload: str) -> Any:
    # Here, since it brings TensorFlow along, which other formats do without.
    from tfx_bsl.coders import example_coder, sequence_example_coder

    if payload == "example":
        return example_coder.ExamplesToRecordBatchDecoder()
    return sequence_example_coder.SequenceExamplesToRecordBatchDecoder(_SEQUENCE)


def _decoded(decoder: Any, records: list[bytes]) -> pa.RecordBatch | None:
    try:
        return decoder.DecodeBatch(records)
    except (RuntimeError, ValueError):
        return None
