"""Transformed examples as a tf.data pipeline: shuffled, batched, parsed a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from components.features import names


def examples(files: Sequence[str], spec: dict[str, Any], batch_size: int) -> Any:
    """Every example once, in file order: for evaluation.

    Args:
      files: gzip TFRecord files or patterns of tf.Example.
      spec: parsing spec of the transformed features, the label among them.
      batch_size: examples per batch; the last may be smaller.

    Returns:
      A dataset of (features: dict of [batch, …] tensors, label: [batch, 1]).
    """
    return _records(files).batch(batch_size).map(_parse(spec), tf.data.AUTOTUNE).prefetch(2)


def training(files: Sequence[str], spec: dict[str, Any], batch_size: int, shuffle_buffer: int, seed: int) -> Any:
    """An endless stream of shuffled batches; the records are kept in memory after the first pass.

    Serialized records are what is shuffled and batched, and a whole batch is parsed at once: parsing one by one costs
    several times as much.

    Args:
      files: gzip TFRecord files or patterns of tf.Example.
      spec: parsing spec of the transformed features, the label among them.
      batch_size: examples per batch, every batch full.
      shuffle_buffer: examples to draw from.
      seed: seed of the order.

    Returns:
      A dataset like that of `examples`, without end.
    """
    records = _records(files).cache().shuffle(shuffle_buffer, seed=seed).repeat()
    return records.batch(batch_size, drop_remainder=True).map(_parse(spec), tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _records(files: Sequence[str]) -> Any:
    found = sorted(name for pattern in files for name in tf.io.gfile.glob(pattern))
    return tf.data.TFRecordDataset(
        found, compression_type="GZIP", buffer_size=1 << 20, num_parallel_reads=min(len(found), 4)
    )


def _parse(spec: dict[str, Any]) -> Any:
    def parse(serialized: Any) -> tuple[dict[str, Any], Any]:
        features = tf.io.parse_example(serialized, spec)
        return features, tf.reshape(features.pop(names.LABEL), [-1, 1])

    return parse
