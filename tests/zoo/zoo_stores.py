"""Write the rows of a whole run to files in every format that the config supports; see `zoo_models`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet


def store_csv(rows: pd.DataFrame, folder: Path) -> Path:
    """Write one CSV file."""
    rows.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def store_parquet(rows: pd.DataFrame, folder: Path) -> Path:
    """Write one Parquet file."""
    parquet.write_table(pa.Table.from_pandas(rows, preserve_index=False), folder / "rows.parquet")
    return folder / "rows.parquet"


def store_tfrecord(rows: pd.DataFrame, folder: Path) -> Path:
    """Write one TFRecord file."""
    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as writer:
        for row in rows.to_dict("records"):
            writer.write(example(row))
    return folder / "rows.tfrecord"


def store_two_files(rows: pd.DataFrame, folder: Path) -> Path:
    """Write the rows to train on to one file, and the others to another."""
    for name, part in (("train", rows[rows["row"] % 4 != 3]), ("heldout", rows[rows["row"] % 4 == 3])):
        (folder / "files" / name).mkdir(parents=True)
        part.to_csv(folder / "files" / name / "rows.csv", index=False)
    return folder / "files"


def store_images(rows: pd.DataFrame, folder: Path) -> Path:
    """Write a PNG file for each row, in a folder for its class."""
    for row in rows.itertuples():
        path = folder / "images" / str(row.label) / f"{row.row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row.image)
    return folder / "images"


def is_missing(value: Any) -> bool:
    """Return whether the value of a cell is missing."""
    return value is None or (isinstance(value, float) and np.isnan(value))


def example(row: Mapping[str, Any]) -> bytes:
    """Serialize a row as a tf.Example, without its missing values."""
    features = {}
    for name, value in row.items():
        values = [] if is_missing(value) else [*value] if isinstance(value, (list, np.ndarray)) else [value]
        if not values:
            continue
        if isinstance(values[0], (str, bytes)):
            encoded = [value if isinstance(value, bytes) else value.encode() for value in values]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))
        elif isinstance(values[0], (float, np.floating)):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
