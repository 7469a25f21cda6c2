"""Tests of writing predictions to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import csv, parquet

from components.base.errors import InputError
from components.predictor import output
from components.predictor.config import OutputFormat

ROWS = pa.RecordBatch.from_pydict(
    {
        "id": pa.array(["a", None]),
        "at": pa.array([0, 86_400_000], pa.timestamp("ms")),
        "score": pa.array([0.5, 0.25], pa.float32()),
        "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    }
)


def write_batches(path: Path, format_: OutputFormat, *batches: pa.RecordBatch) -> Path:
    writer = output.create(str(path), format_, batches[0].schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    return path


def test_parquet_keeps_the_types_of_columns(tmp_path: Path) -> None:
    read = parquet.read_table(write_batches(tmp_path / "p", "parquet", ROWS, ROWS))
    # The Parquet specification requires this name for the values of a list.
    assert read.schema.field("pair").type.value_field.name == "element"
    assert read.cast(ROWS.schema).equals(pa.Table.from_batches([ROWS] * 2))


def test_csv_has_a_column_per_value_of_a_list(tmp_path: Path) -> None:
    read = csv.read_csv(write_batches(tmp_path / "p", "csv", ROWS, ROWS))
    assert read.column_names == ["id", "at", "score", "pair_0", "pair_1"]
    assert read.column("pair_1").to_pylist() == [2, 4, 2, 4]
    assert read.column("id").to_pylist() == ["a", "", "a", ""]


def test_csv_joins_lists_of_texts(tmp_path: Path) -> None:
    lists = pa.RecordBatch.from_pydict({"x": pa.array([["a", "b"], [], ["c"]])})
    assert write_batches(tmp_path / "p", "csv", lists).read_text() == '"x"\n"a|b"\n""\n"c"\n'


def test_csv_rejects_lists_of_variable_length(tmp_path: Path) -> None:
    lists = pa.RecordBatch.from_pydict({"x": pa.array([[1], [1, 2]])})
    with pytest.raises(InputError, match=r"column x: expected one value per row, received list<item: int64>"):
        write_batches(tmp_path / "p", "csv", lists)


def test_tfrecord_has_an_example_per_row(tmp_path: Path) -> None:
    path = write_batches(tmp_path / "p.gz", "tfrecord", ROWS)
    records = tf.data.TFRecordDataset(str(path), "GZIP").as_numpy_iterator()
    first, second = (tf.train.Example.FromString(record).features.feature for record in records)
    values: dict[str, Any] = {
        name: list(feature.bytes_list.value) for name, feature in first.items() if name in ("id", "at")
    }
    assert values == {"id": [b"a"], "at": [b"1970-01-01 00:00:00.000"]}
    assert (list(first["score"].float_list.value), list(second["pair"].int64_list.value)) == ([0.5], [3, 4])
    assert not second["id"].bytes_list.value
