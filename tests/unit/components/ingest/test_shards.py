"""What becomes of a value that is missing, on its way into a tf.Example."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import tensorflow as tf

from components.ingest.shards import Writer


def test_a_missing_value_is_a_feature_without_a_kind(tmp_path: Path) -> None:
    """As TFX's own CsvExampleGen writes it: an empty list would count as a value for TFDV, and so for the data gate."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, None]), pa.array([None, b"x"], pa.binary()), pa.nulls(2)], ["count", "shop", "empty"]
    )
    writer = Writer(str(tmp_path), {"train": 1}, order="a")
    writer.write(batch, None)
    (shard,) = writer.close()
    records = tf.data.TFRecordDataset(shard.path, compression_type="GZIP").as_numpy_iterator()
    examples = [tf.train.Example.FromString(record) for record in records]
    kinds = {
        tuple(sorted((name, feature.WhichOneof("kind")) for name, feature in each.features.feature.items()))
        for each in examples
    }
    assert kinds == {
        (("count", "int64_list"), ("empty", None), ("shop", None)),
        (("count", None), ("empty", None), ("shop", "bytes_list")),
    }
