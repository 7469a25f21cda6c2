"""TFRecord files of Examples and SequenceExamples are read as columns; records of Examples are kept unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.ingest import example_reader, readers
from components.ingest.blocks import RowCounts, RowLog
from components.ingest.config import DataConfig, IngestConfig, TfrecordConfig
from components.ingest.example_reader import ExampleReader

pytestmark = pytest.mark.both_lines

EXAMPLE = TfrecordConfig()
SEQUENCE = TfrecordConfig(payload="sequence_example")


def features(**values: Any) -> tf.train.Features:
    result = tf.train.Features()
    for name, value in values.items():
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(value[0])]
        getattr(result.feature[name], kind).value.extend(value)
    return result


def example(**values: Any) -> bytes:
    return bytes(tf.train.Example(features=features(**values)).SerializeToString())


def sequence(clicks: list[Any] | None, /, **values: Any) -> bytes:
    """Return a serialized tf.SequenceExample. Its feature list `clicks` has one step per number or list of numbers."""
    steps = [click if isinstance(click, list) else [click] for click in clicks or ()]
    feature = [tf.train.Feature(int64_list=tf.train.Int64List(value=step)) for step in steps]
    lists = {} if clicks is None else {"clicks": tf.train.FeatureList(feature=feature)}
    full = tf.train.SequenceExample(context=features(**values), feature_lists=tf.train.FeatureLists(feature_list=lists))
    return bytes(full.SerializeToString())


def write(folder: Path, records: list[bytes], compression: Literal["", "GZIP"] = "") -> str:
    path = str(folder / "in.tfrecord")
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def read(path: str, config: TfrecordConfig = EXAMPLE) -> tuple[dict[str, list[Any]], list[bytes], list[int], RowCounts]:
    """Return the columns, the serialized records, the positions of the rows and the counts."""
    reader, row_log = ExampleReader(config), RowLog(None)
    (file_range,) = reader.ranges(path, "train")
    blocks = list(reader.read(file_range, row_log))
    records: list[bytes] = []
    positions: list[int] = []
    for block in blocks:
        records += [] if block.records is None else block.records.to_pylist()
        positions += [block.origin(row)[1] for row in range(block.columns.num_rows)]
    return pa.Table.from_batches([block.columns for block in blocks]).to_pydict(), records, positions, row_log.close()


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_kept_and_features_are_columns(tmp_path: Path, compression: Any) -> None:
    serialized = [example(a=[1, 2], b=[b"x"]), example(a=[3]), example(c=[0.5])]
    path = write(tmp_path, serialized, compression)
    columns, records, positions, counts = read(path)
    assert columns == {"a": [[1, 2], [3], None], "b": [[b"x"], None, None], "c": [None, None, [0.5]]}
    assert records == serialized
    # Positions are offsets in the uncompressed data.
    assert positions == [0, 16 + len(serialized[0]), 32 + len(serialized[0]) + len(serialized[1])]
    assert (counts.rows, counts.bad) == (3, 0)
    assert ExampleReader(EXAMPLE).properties.position_unit == "offset"
    assert example_reader.names(path, EXAMPLE) == ["a", "b", "c"]


def test_feature_lists_are_list_columns(tmp_path: Path) -> None:
    serialized = [sequence([1, 2, 3], user=[b"x"]), sequence([], user=[b"y"]), sequence(None), sequence([4])]
    path = write(tmp_path, serialized)
    columns, records, _, _ = read(path, SEQUENCE)
    assert columns == {"user": [[b"x"], [b"y"], None, None], "clicks": [[1, 2, 3], [], None, [4]]}
    assert records == []
    assert example_reader.names(path, SEQUENCE) == ["clicks", "user"]


def test_steps_without_exactly_one_value_are_bad_rows(tmp_path: Path) -> None:
    serialized = [sequence([1]), sequence([[2, 3], 4]), b"\xff", sequence([5, []]), sequence([6])]
    path = write(tmp_path, serialized)
    columns, _, positions, counts = read(path, SEQUENCE)
    assert columns == {"clicks": [[1], [6]]}
    assert positions == [0, sum(16 + len(record) for record in serialized[:4])]
    assert [bad.reason for bad in counts.first_bad] == [
        "expected one value in each step of the feature list 'clicks', received another number",
        "expected a serialized tf.SequenceExample, received 1 other bytes",
        "expected one value in each step of the feature list 'clicks', received another number",
    ]


def test_feature_list_with_the_name_of_a_feature_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'clicks' is both a context feature and a feature list"):
        read(write(tmp_path, [sequence([1], clicks=[1])]), SEQUENCE)


def test_records_that_are_not_examples_are_bad_rows(tmp_path: Path) -> None:
    good = example(a=[1])
    path = write(tmp_path, [good, b"\xff\xff\xff", good])
    columns, records, positions, counts = read(path)
    assert columns == {"a": [[1], [1]]}
    assert records == [good, good]
    assert positions == [0, 2 * 16 + len(good) + 3]
    (bad,) = counts.first_bad
    assert (counts.rows, counts.bad, counts.position_in_file(bad)) == (3, 1, 16 + len(good))
    assert bad.reason == "expected a serialized tf.Example, received 3 other bytes"


def test_damaged_records_are_bad_rows(tmp_path: Path) -> None:
    good = example(a=[1])
    path = write(tmp_path, [good] * 3)
    content = bytearray(Path(path).read_bytes())
    content[16 + len(good) + 14] ^= 1
    Path(path).write_bytes(bytes(content))
    columns, _, positions, counts = read(path)
    assert columns == {"a": [[1], [1]]}
    assert positions == [0, 32 + 2 * len(good)]
    assert (counts.rows, counts.bad) == (3, 1)
    assert [counts.position_in_file(bad) for bad in counts.first_bad] == [16 + len(good)]
    assert counts.first_bad[0].reason == "the data do not match their checksum"


def test_feature_of_two_types_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, [example(a=[1]), example(a=[b"x"])])
    with pytest.raises(InputError) as raised:
        read(path)
    assert raised.value.headline == (f"{path}: a feature has different types in different records")


def test_files_without_records_or_with_other_records_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, [])
    with pytest.raises(InputError) as raised:
        example_reader.names(path, EXAMPLE)
    assert raised.value.headline == f"{path} has no rows: it does not contain records"
    path = write(tmp_path, [b"\xff"])
    for config, kind in ((EXAMPLE, "Example"), (SEQUENCE, "SequenceExample")):
        with pytest.raises(InputError) as raised:
            example_reader.names(path, config)
        assert raised.value.headline == f"{path}: expected serialized tf.{kind}s, received other records"


def test_features_are_the_columns_of_the_input(tmp_path: Path) -> None:
    path = write(tmp_path, [example(a=[1], b=[b"x"])])
    assert readers.columns(DataConfig(path=path, label="a")) == ["a", "b"]
    assert isinstance(readers.reader(IngestConfig(format="tfrecord"), [path]), ExampleReader)
    grouped = IngestConfig.model_validate(
        {"format": "tfrecord", "split": {"by": "group", "columns": "c", "train": 1, "eval": 1}}
    )
    with pytest.raises(InputError, match=r"data\.split\.columns: there is no column 'c'"):
        readers.reader(grouped, [path])
