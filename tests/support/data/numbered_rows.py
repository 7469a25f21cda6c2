"""Transformed examples as Transform writes them, whose values follow from the number of their row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet

from components.features import feature_names

SPEC = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "size": tf.io.FixedLenFeature([], tf.float32),
    "pixels": tf.io.FixedLenFeature([3], tf.float32),
    "grid": tf.io.FixedLenFeature([2, 2], tf.int64),
    "text": tf.io.FixedLenFeature([], tf.string),
    "tags": tf.io.VarLenFeature(tf.string),
    "counts": tf.io.VarLenFeature(tf.int64),
    feature_names.LABEL: tf.io.FixedLenFeature([], tf.float32),
}
DTYPES = {name: column.dtype for name, column in SPEC.items()}
DTYPES |= dict.fromkeys((feature_names.ROW_KEY, feature_names.ROW_END), tf.int64)
TYPES = {tf.int64: pa.int64(), tf.float32: pa.float32(), tf.string: pa.large_binary()}
GROUP = 5
"""Number of rows in a row group of a Parquet file."""
Format = Literal["parquet", "tfrecord"]


def values(row: int) -> dict[str, list[Any] | None]:
    """Return the values of a row by column. None means that the value is missing."""
    return {
        "id": [row],
        "size": [row / 2],
        "pixels": [row, 0, 1],
        "grid": [row, 1, 2, row],
        "text": [str(row).encode()],
        "tags": [str(number).encode() for number in range(row % 3)],
        "counts": None if row % 4 == 0 else [row] * (row % 4),
        feature_names.LABEL: [row % 2],
    }


def row_end(row: int) -> int:
    """Return the row end of a row: up to six more than its row key."""
    return 1 + row // 4 + 2 * (row % 4)


def write(folder: Path, rows: int, files: int, stored: Format = "tfrecord", row_key: bool = False) -> list[str]:
    """Write rows to files, and return their paths. With `row_key`, every four rows share a row key; see `row_end`."""
    parts = [[row for row in range(rows) if row * files // rows == file] for file in range(files)]
    paths = [str(folder / f"examples-{number:05}") for number in range(files)]
    for path, part in zip(paths, parts, strict=True):
        keys = [
            {feature_names.ROW_KEY: [1 + row // 4], feature_names.ROW_END: [row_end(row)]} if row_key else {}
            for row in part
        ]
        contents = [{**values(row), **key} for row, key in zip(part, keys, strict=True)]
        (write_parquet if stored == "parquet" else write_tfrecord)(path, contents)
    return paths


def write_parquet(path: str, rows: list[dict[str, Any]]) -> None:
    names = rows[0] if rows else SPEC
    columns = {name: pa.array([row[name] for row in rows], pa.large_list(TYPES[DTYPES[name]])) for name in names}
    parquet.write_table(pa.table(columns), path, row_group_size=GROUP)


def write_tfrecord(path: str, rows: list[dict[str, Any]]) -> None:
    kinds = {tf.int64: "int64_list", tf.float32: "float_list", tf.string: "bytes_list"}
    lists = {"int64_list": tf.train.Int64List, "float_list": tf.train.FloatList, "bytes_list": tf.train.BytesList}
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type="GZIP")) as file:
        for row in rows:
            features = {}
            for name, column_values in row.items():
                kind = kinds[DTYPES[name]]
                features[name] = tf.train.Feature(
                    **({} if column_values is None else {kind: lists[kind](value=column_values)})
                )
            file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def assert_columns(features: dict[str, Any], label: Any, rows: list[int]) -> None:
    """Check that the columns equal the result of tf.io.parse_example for these rows."""
    assert set(features) == set(SPEC) - {feature_names.LABEL}
    expected = [values(row) for row in rows]
    for name, column in {**features, feature_names.LABEL: label}.items():
        if isinstance(SPEC[name], tf.io.VarLenFeature):
            lists = [row[name] or [] for row in expected]
            assert isinstance(column, tf.SparseTensor)
            assert tf.RaggedTensor.from_sparse(column).to_list() == lists
            assert column.dense_shape.numpy().tolist() == [len(rows), max(map(len, lists))]
        else:
            shape = [1] if name == feature_names.LABEL else list(SPEC[name].shape)
            dtype = SPEC[name].dtype.as_numpy_dtype
            np.testing.assert_array_equal(
                column, np.array([row[name] for row in expected], dtype).reshape([-1, *shape])
            )
        assert column.dtype == SPEC[name].dtype
