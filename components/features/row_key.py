"""Compute the row key in the transform graph. Rows with the same key stay together when training holds out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from components.features import dates, feature_names
from components.features.column import Column
from components.features.plan import RowKey

_HASHES = (1 << 63) - 1


def compute(key: RowKey, columns: Mapping[str, Column]) -> dict[str, tf.Tensor]:
    """Compute the keys of a batch, by the names of their features.

    Args:
      key: Kind of the key, and its columns.
      columns: Name → raw column, with all columns of the key.

    Returns:
      The keys, int64 of shape [batch]: a hash of the group, or seconds since 1970. If all values are missing, the key
      is NO_ROW_KEY.
    """
    values = [columns[name] for name in key.columns]
    if key.by in ("time", "origin"):
        names = (feature_names.ROW_KEY, feature_names.ROW_END)
        return {name: _mark_missing(*dates.seconds_of(value)) for name, value in zip(names, values, strict=False)}
    return {feature_names.ROW_KEY: hash_group(values)}


def hash_group(columns: Sequence[Column]) -> tf.Tensor:
    """Hash the values of several columns together; NO_ROW_KEY if all values are missing; int64, shape [batch]."""
    texts = [tf.where(column.present, column.texts(), "") for column in columns]
    keys = tf.strings.to_hash_bucket_fast(tf.strings.join(texts, "\x1f"), _HASHES)
    # As in ExampleGen, a row belongs to a group unless all columns are missing.
    return _mark_missing(keys, tf.reduce_any(tf.stack([column.present for column in columns]), axis=0))


def _mark_missing(keys: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    return tf.where(present, keys, tf.constant(feature_names.NO_ROW_KEY, tf.int64))
