"""Rows are written to TFRecord and Parquet shards of bounded size, which TensorFlow and pyarrow can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.data import examples as data_examples
from components.data.examples import Examples
from components.data.tfrecord_writer import frame_records
from components.ingest import shard_writer
from components.ingest.shard_writer import Shard, Writer
from components.ingest.split_assignment import LEFT_OUT

pytestmark = pytest.mark.both_lines


def records(*values: bytes) -> pa.Array:
    return frame_records(pa.array(values, pa.binary()))


def indices(*numbers: int) -> Any:
    return np.array(numbers, np.intp)


def read(shard: Shard) -> list[bytes]:
    dataset = tf.data.TFRecordDataset(shard.path, compression_type="GZIP")
    return list(dataset.as_numpy_iterator())


def test_records_are_written_to_their_splits_in_order(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), ["train", "eval", "test"])
    # The third split does not get a record, and a record may be left out.
    writer.write(records(b"a", b"", b"c", b"d"), indices(0, 1, LEFT_OUT, 0), ("x.csv", 3))
    writer.write(records(b"gone"), indices(LEFT_OUT), ("x.csv", 4))
    writer.write(records(), indices(), ("x.csv", 4))
    # A sliced array has an offset.
    writer.write(records(b"-", b"e" * 100_000, b"-").slice(1, 1), indices(0), ("y.csv", 0))
    train, eval_ = sorted(writer.close(), key=lambda shard: shard.split, reverse=True)
    assert (train.split, train.rows, read(train)) == ("train", 3, [b"a", b"d", b"e" * 100_000])
    assert (eval_.split, eval_.rows, read(eval_)) == ("eval", 1, [b""])
    # Shards of a split are ordered by their first row.
    assert train.order[:2] == eval_.order[:2] == ("x.csv", 3)
    assert {str(path) for path in tmp_path.iterdir()} == {train.path, eval_.path}


def test_new_shard_begins_when_a_shard_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "_SHARD", 100)
    writer = Writer(str(tmp_path), ["train"])
    content = [b"%02d" % number * 20 for number in range(9)]
    for number, item in enumerate(content):
        writer.write(records(item), indices(0), ("x.csv", number // 4))
    written = writer.close()
    assert [shard.rows for shard in written] == [2, 2, 2, 2, 1]
    assert sorted(written) == written
    assert [record for shard in written for record in read(shard)] == content
    assert [shard.order[:2] for shard in written] == [("x.csv", number) for number in (0, 0, 1, 1, 2)]
    # A block is written to one shard even if it is larger than the limit.
    writer = Writer(str(tmp_path), ["train"])
    writer.write(records(*content), indices(*[0] * 9), ("x.csv", 0))
    (one_shard,) = writer.close()
    assert read(one_shard) == content


def test_workers_use_different_file_names(tmp_path: Path) -> None:
    writers = [Writer(str(tmp_path), ["train"]) for _ in range(3)]
    for writer in writers:
        writer.write(records(b"a"), indices(0), ("x.csv", 0))
    assert len({shard.path for writer in writers for shard in writer.close()}) == 3


def test_discarded_shards_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "_SHARD", 100)
    writer = Writer(str(tmp_path), ["train", "eval"])
    for _ in range(5):
        writer.write(records(b"a" * 50, b"b"), indices(0, 1), ("x.csv", 0))
    assert list(tmp_path.iterdir())
    writer.discard()
    assert list(tmp_path.iterdir()) == []
    assert writer.close() == []


def test_writer_without_rows_does_not_create_files(tmp_path: Path) -> None:
    assert Writer(str(tmp_path), ["train"]).close() == []
    assert list(tmp_path.iterdir()) == []


def columns(**values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(values)


def read_columns(shard: Shard) -> dict[str, Any]:
    values: dict[str, Any] = pa.Table.from_batches(Examples((shard.path,), "parquet").batches()).to_pydict()
    return values


def test_columns_are_sorted_and_rows_are_written_to_their_splits(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), ["train", "eval"])
    rows = columns(b=pa.array([1, None, 3, 4]), a=pa.array([[b"x"], None, [], [b"y", b"z"]]))
    writer.write(rows, indices(0, 1, LEFT_OUT, 0), ("x.csv", 3))
    writer.write(rows.slice(0, 1), indices(0), ("x.csv", 4))
    eval_, train = sorted(writer.close())
    assert (train.split, train.rows, train.order[:2]) == ("train", 3, ("x.csv", 3))
    assert list(read_columns(train).items()) == [("a", [[b"x"], [b"y", b"z"], [b"x"]]), ("b", [[1], [4], [1]])]
    assert read_columns(eval_) == {"a": [None], "b": [None]}


def test_new_shard_begins_only_when_a_column_gets_its_first_value(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), ["train"])
    blocks = [
        columns(a=pa.array([1])),
        columns(a=pa.array([2]), b=pa.nulls(1)),
        columns(a=pa.nulls(1)),
        # Empty lists may have another value type than the lists of other blocks.
        columns(a=pa.array([3]), b=pa.array([[]], pa.list_(pa.binary()))),
        columns(b=pa.array([[4, 5]])),
        columns(a=pa.array([6]), b=pa.array([[]], pa.list_(pa.binary()))),
    ]
    for number, block in enumerate(blocks):
        writer.write(block, indices(0), ("x.csv", number))
    written = writer.close()
    assert [read_columns(shard) for shard in written] == [
        {"a": [[1]]},
        {"a": [[2], None], "b": [None, None]},
        {"a": [[3]], "b": [[]]},
        {"a": [None, [6]], "b": [[4, 5], []]},
    ]
    assert [shard.rows for shard in written] == [1, 2, 1, 2]
    assert sorted(written) == written


def test_new_parquet_shard_begins_when_a_shard_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "_SHARD", 100)
    monkeypatch.setattr(data_examples, "BATCH_ROWS", 10)
    writer = Writer(str(tmp_path), ["train"])
    for number in range(5):
        writer.write(columns(a=pa.array(range(8))), indices(*[0] * 8), ("x.csv", number))
    written = writer.close()
    assert [shard.rows for shard in written] == [16, 16, 8]
    assert [row for shard in written for row in read_columns(shard)["a"]] == [[value] for value in range(8)] * 5
    writer.discard()
    assert list(tmp_path.iterdir()) == []
