"""The loss of a retrieval: a query's own item against the items of the other rows of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft

from components.models import two_tower

ItemCounts: TypeAlias = npt.NDArray[np.int64]
"""A count for each entry of the item's vocabulary, in the order of their ids: [entries]."""


def counts(transform: tft.TFTransformOutput, name: str, vocabulary: str) -> ItemCounts:
    """Read how often each item occurs in the training split; 0 where it does not.

    Args:
      transform: the transform graph.
      name: `feature_names.ITEM_ROWS` or `ITEM_INTERACTIONS`.
      vocabulary: the name of the item's vocabulary.
    """
    found: dict[bytes, int] = {}
    for line in transform.vocabulary_by_name(name):
        count, _, item = line.partition(b" ")
        found[item] = int(count)
    entries = transform.vocabulary_by_name(vocabulary)
    return np.fromiter((found.get(entry, 0) for entry in entries), np.int64, len(entries))


def log_probabilities(rows: ItemCounts, total: int, cardinality: int) -> npt.NDArray[np.float32]:
    """Return the logarithm of the probability with which an item is in a row of the training split, by id.

    Items that are not in the vocabulary share the rest of the rows.

    Args:
      rows: number of rows of each entry of the vocabulary.
      total: number of all rows.
      cardinality: number of ids: a missing item is 0, the entries follow, and then other items.
    """
    others = (total - int(rows.sum())) / max(cardinality - 1 - len(rows), 1)
    of_id = np.full(cardinality, others)
    of_id[1 : len(rows) + 1] = rows
    return np.log(np.maximum(of_id, 1.0) / total).astype(np.float32)


def sampled_softmax(
    log_probability: npt.NDArray[np.float32], temperature: float, share: float
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the crossentropy of a row's item among all items of the batch, corrected for their frequency there.

    An item that occurs often is often one of the others, so that it would get too low a score; therefore each score is
    reduced by the logarithm of the item's probability. It is the exact one of the training split, which Transform has
    counted, so that neither a streaming estimate nor its warm-up is needed. Other rows with the row's own item do not
    count among the others. A row with label 0 has the loss 0; its item is one of the others for all other rows.

    Source: X. Yi et al., Sampling-bias-corrected neural modeling for large corpus item recommendations, RecSys 2019.

    Args:
      log_probability: of each id, see `log_probabilities`.
      temperature: what scores are divided by.
      share: of the rows that have label 1, by which losses are divided, so that their mean is that of these rows.

    Returns:
      (label [n], output of the network [n, outputs]) → loss, float32 [n].
    """

    def loss(label: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        query, item, ids = two_tower.vectors(output)
        scores = tf.matmul(query, item, transpose_b=True) / temperature
        scores -= tf.gather(tf.constant(log_probability), ids)
        own = tf.linalg.diag_part(scores)
        same = tf.equal(ids[:, tf.newaxis], ids)
        others = tf.where(same, scores.dtype.min, scores)
        total = tf.reduce_logsumexp(tf.concat([own[:, tf.newaxis], others], axis=1), axis=1)
        return (total - own) * tf.cast(label, scores.dtype) / share

    return loss
