"""The key of a row in the transform graph: what keeps rows together where training holds out some of them."""

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
      key: The kind and its columns.
      columns: Name → raw column, with all columns of the key.

    Returns:
      int64, shape [batch]: by group, a hash of the values, equal for rows of one group; by time, seconds since 1970.
        NO_ROW_KEY where all values are missing.
    """
    values = [columns[name] for name in key.columns]
    if key.by == "time":
        keys, present = dates.seconds_of(values[0])
    else:
        texts = [tf.where(column.present, column.texts(), "") for column in values]
        keys = tf.strings.to_hash_bucket_fast(tf.strings.join(texts, "\x1f"), _HASHES)
        # As in ExampleGen, only a row without any value of the columns belongs to no group.
        present = tf.reduce_any(tf.stack([column.present for column in values]), axis=0)
    return tf.where(present, keys, tf.constant(feature_names.NO_ROW_KEY, tf.int64))
