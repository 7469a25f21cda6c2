"""Examples artifacts are read in both formats, whether TFX or this project has written them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from components.base.errors import InputError, MachineError
from components.data.example_artifacts import examples_of, format_of, splits_of, write_tfrecords
from components.data.example_encoder import encode
from components.data.examples import ParquetWriter, to_lists

ROWS = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int64()), "b": pa.array([b"x", b"y"], pa.binary())})


def artifact(folder: Path, payload: int | None = example_gen_pb2.FORMAT_PARQUET) -> standard_artifacts.Examples:
    """Return an artifact whose split `eval` consists of two Parquet files."""
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    examples.split_names = '["eval"]'
    if payload is not None:
        examples_utils.set_payload_format(examples, payload)
    (folder / "Split-eval").mkdir()
    for number in (1, 0):
        writer = ParquetWriter(str(folder / f"Split-eval/data_parquet-{number:05d}-of-00002.parquet"), SCHEMA)
        writer.write(to_lists(ROWS))
        writer.close()
    return examples


SCHEMA = to_lists(ROWS).schema


def test_files_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    read = examples_of(artifact(tmp_path), "eval")
    assert [Path(path).name for path in read.paths] == [
        "data_parquet-00000-of-00002.parquet",
        "data_parquet-00001-of-00002.parquet",
    ]
    assert pa.Table.from_batches(read.batches()).to_pydict() == {
        "a": [[1], None] * 2,
        "b": [[b"x"], [b"y"]] * 2,
    }


def test_schema_selects_columns(tmp_path: Path) -> None:
    schema = text_format.Parse('feature { name: "b" type: BYTES }', schema_pb2.Schema())
    (batch, _) = examples_of(artifact(tmp_path), "eval", schema).batches()
    assert batch.schema.names == ["b"]


@pytest.mark.parametrize("payload", [None, example_gen_pb2.FORMAT_TF_EXAMPLE])
def test_default_payload_is_tf_examples(tmp_path: Path, payload: int | None) -> None:
    assert examples_of(artifact(tmp_path, payload), "eval").format == "tfrecord"


@pytest.mark.parametrize("rows", [None, 3])
def test_tfrecords_are_written_from_parquet(tmp_path: Path, rows: int | None) -> None:
    columns = artifact(tmp_path)
    written = write_tfrecords(columns, str(tmp_path / "out"), ["eval"], rows)
    assert format_of(written) == "tfrecord"
    assert splits_of(written) == ["eval"]
    files = sorted((tmp_path / "out/Split-eval").iterdir())
    count = 2 if rows is None else 1
    assert [path.name for path in files] == [f"data_tfrecord-{at:05d}-of-{count:05d}.gz" for at in range(count)]
    expected = encode(ROWS).to_pylist() * 2
    assert list(tf.data.TFRecordDataset(list(map(str, files)), "GZIP").as_numpy_iterator()) == expected[:rows]


def test_sequence_examples_are_rejected(tmp_path: Path) -> None:
    sequences = artifact(tmp_path, example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE)
    assert format_of(sequences) is None
    with pytest.raises(InputError, match="FORMAT_PARQUET, received FORMAT_TF_SEQUENCE_EXAMPLE"):
        examples_of(sequences, "eval")


def test_split_without_files_is_reported(tmp_path: Path) -> None:
    empty = artifact(tmp_path)
    for path in (tmp_path / "Split-eval").iterdir():
        path.unlink()
    with pytest.raises(MachineError, match=r"Split-eval/\*: expected files of examples, received none"):
        examples_of(empty, "eval")
    with pytest.raises(ValueError, match="test"):
        examples_of(empty, "test")


def test_custom_split_patterns_are_used(tmp_path: Path) -> None:
    imported = artifact(tmp_path)
    (tmp_path / "Split-eval").rename(tmp_path / "elsewhere")
    key, value = examples_utils.get_custom_split_patterns_key_and_property({"eval": "elsewhere/*-00001-*"})
    imported.set_string_custom_property(key, value)
    assert splits_of(imported) == splits_of(artifact(tmp_path)) == ["eval"]
    (path,) = examples_of(imported, "eval").paths
    assert path == str(tmp_path / "elsewhere/data_parquet-00001-of-00002.parquet")
