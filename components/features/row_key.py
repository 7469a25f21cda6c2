"""Compute the row key in the transform graph. Rows with the same key stay together when training holds out rows."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from components.features import dates, feature_names
from components.features.column import Column
from components.features.plan import RowKey

_HASHES = (1 << 63) - 1


def compute(key: RowKey, columns: Mapping[str, Column]) -> tf.Tensor:
    """Compute the keys of a batch.

    Args:
      key: Kind of the key, and its columns.
      columns: Name → raw column, with all columns of the key.

    Returns:
      The keys, int64 of shape [batch]: a hash of the group, or seconds since 1970. If all values are missing, the key
      is NO_ROW_KEY.
    """
    values = [columns[name] for name in key.columns]
    if key.by == "time":
        keys, present = dates.seconds_of(values[0])
    else:
        texts = [tf.where(column.present, column.texts(), "") for column in values]
        keys = tf.strings.to_hash_bucket_fast(tf.strings.join(texts, "\x1f"), _HASHES)
        # As in ExampleGen, a row belongs to a group unless all columns are missing.
        present = tf.reduce_any(tf.stack([column.present for column in values]), axis=0)
    return tf.where(present, keys, tf.constant(feature_names.NO_ROW_KEY, tf.int64))
