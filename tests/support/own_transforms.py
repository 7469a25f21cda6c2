"""A user's own preprocessing_fns, on the columns of `all_operations`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft


def two_phases(inputs: dict[str, Any]) -> dict[str, Any]:
    """Analyzers whose inputs depend on others' results, a vocabulary, and a tensor of any number of values."""
    price = tf.sparse.to_dense(inputs["price"])[:, 0]
    scaled = tft.scale_to_z_score(price)
    return {
        "scaled": scaled,
        "bucket": tft.bucketize(scaled * scaled, 4),
        "shop": tft.compute_and_apply_vocabulary(tf.sparse.to_dense(inputs["shop"])[:, 0], vocab_filename="shop"),
        "tags": tf.sparse.reorder(inputs["tags"]),
        "pair": inputs["pair"],
    }


def ragged(inputs: dict[str, Any]) -> dict[str, Any]:
    """A ragged tensor."""
    return {"words": tf.RaggedTensor.from_sparse(inputs["tags"])}


def fails(inputs: dict[str, Any]) -> dict[str, Any]:
    """Raises an error."""
    raise ValueError("no such luck")
