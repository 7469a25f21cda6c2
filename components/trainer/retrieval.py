"""The loss of a retrieval: the item of a query against the items of the other rows in the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft

from components.models import two_tower

ItemCounts: TypeAlias = npt.NDArray[np.int64]
"""One count per entry of the item's vocabulary, in the order of the IDs: [entries]."""


def read_counts(transform: tft.TFTransformOutput, name: str, vocabulary: str) -> ItemCounts:
    """Read how often each item occurs in the training split.

    Args:
      transform: The transform graph.
      name: `feature_names.ITEM_ROWS` or `ITEM_INTERACTIONS`.
      vocabulary: Name of the item's vocabulary.
    """
    count_by_item: dict[bytes, int] = {}
    for line in transform.vocabulary_by_name(name):
        count, _, item = line.partition(b" ")
        count_by_item[item] = int(count)
    entries = transform.vocabulary_by_name(vocabulary)
    return np.fromiter((count_by_item.get(entry, 0) for entry in entries), np.int64, len(entries))


def log_probabilities(rows: ItemCounts, total: int, cardinality: int) -> npt.NDArray[np.float32]:
    """Return, by ID, the logarithm of the probability that a row of the training split contains the item.

    Items that are not in the vocabulary share the remaining rows.

    Args:
      rows: Number of rows per entry of the vocabulary.
      total: Number of all rows.
      cardinality: Number of IDs: 0 for a missing item, then the entries, then items that are not in the vocabulary.
    """
    unlisted = (total - int(rows.sum())) / max(cardinality - 1 - len(rows), 1)
    counts = np.full(cardinality, unlisted)
    counts[1 : len(rows) + 1] = rows
    return np.log(np.maximum(counts, 1.0) / total).astype(np.float32)


def sampled_softmax(
    log_probability: npt.NDArray[np.float32], temperature: float, share: float
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the crossentropy of a row's item among all items of the batch, corrected for the frequency of items.

    A frequent item is often a negative of other rows, which would lower its score too far. So every score is reduced by
    the logarithm of the item's probability. Transform has counted the items, so the probability is exact, without a
    streaming estimate and its warm-up. Rows with the same item are not negatives of each other. A row with label 0
    has loss 0; its item is a negative for all other rows.

    Source: X. Yi et al., Sampling-bias-corrected neural modeling for large corpus item recommendations, RecSys 2019.

    Args:
      log_probability: Logarithm of the probability by ID, see `log_probabilities`.
      temperature: Divisor of the scores.
      share: Share of the rows with label 1. Losses are divided by it, so that their mean over all rows equals the mean
        over the rows with label 1.

    Returns:
      (label [n], output of the network [n, outputs]) → loss, float32 [n].
    """

    def loss(label: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        query, item, ids = two_tower.vectors(output)
        scores = tf.matmul(query, item, transpose_b=True) / temperature
        scores -= tf.gather(tf.constant(log_probability), ids)
        positive = tf.linalg.diag_part(scores)
        same = tf.equal(ids[:, tf.newaxis], ids)
        negatives = tf.where(same, scores.dtype.min, scores)
        total = tf.reduce_logsumexp(tf.concat([positive[:, tf.newaxis], negatives], axis=1), axis=1)
        return (total - positive) * tf.cast(label, scores.dtype) / share

    return loss
