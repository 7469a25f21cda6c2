"""Tests for the sample of training rows that predictions are compared with."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from pipeline.core.metadata.store import Store
from pipeline.inspection.training_rows import sample_training_rows
from tests.support.runs.store_writer import Writer

ROWS = [{"fare": float(number), "company": f"c{number}", "past": [number, number + 1]} for number in range(40)]
COLUMNS = {"fare": False, "company": False, "past": True}


def write_split(folder: Path, payload: str) -> None:
    folder.mkdir(parents=True)
    if payload == "FORMAT_PARQUET":
        lists = [{name: value if isinstance(value, list) else [value] for name, value in row.items()} for row in ROWS]
        pq.write_table(pa.Table.from_pylist(lists), folder / "data_parquet-00000-of-00001")
        return
    with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001.gz"), "GZIP") as file:
        for row in ROWS:
            example = tf.train.Example()
            example.features.feature["fare"].float_list.value.append(row["fare"])
            example.features.feature["company"].bytes_list.value.append(str(row["company"]).encode())
            example.features.feature["past"].int64_list.value.extend(row["past"])
            file.write(example.SerializeToString())


@pytest.mark.parametrize("payload", ["FORMAT_PARQUET", "FORMAT_TF_EXAMPLE"])
def test_rows_of_the_training_split_are_drawn(tmp_path: Path, payload: str) -> None:
    # The name of the folder does not decide how its files are read.
    folder = tmp_path / "parquet"
    write_split(folder / "Split-train", payload)
    writer = Writer(tmp_path / "metadata.db")
    examples = writer.artifact("Examples", str(folder), split_names='["train"]', payload_format=payload)
    writer.execution("r1", "ExampleGen", outputs=(examples,))
    store = Store(tmp_path / "metadata.db")
    drawn = sample_training_rows(store, "r1", COLUMNS, 10)
    assert len(drawn) == 10
    assert all(row in ROWS for row in drawn)
    assert drawn == sample_training_rows(store, "r1", COLUMNS, 10)
    assert {row["past"] for row in sample_training_rows(store, "r1", {"past": False}, 40)} == set(range(40))
    (folder / "Split-train").rename(folder / "deleted")
    assert sample_training_rows(store, "r1", COLUMNS, 10) == []
