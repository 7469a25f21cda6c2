"""User-defined preprocessing_fns, on the columns of `all_operations`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft


def two_phases(inputs: dict[str, Any]) -> dict[str, Any]:
    """Use dependent analyzers, a vocabulary, and a tensor with any number of values."""
    price = _first(inputs["price"])
    scaled = tft.scale_to_z_score(price)
    return {
        "scaled": scaled,
        "square": tft.scale_to_0_1(scaled * scaled),
        "shop": tft.compute_and_apply_vocabulary(_first(inputs["shop"]), vocab_filename="shop"),
        "tags": tf.sparse.reorder(inputs["tags"]),
        "pair": inputs["pair"],
    }


def ragged(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a ragged tensor."""
    return {"words": tf.RaggedTensor.from_sparse(inputs["tags"])}


def fails(inputs: dict[str, Any]) -> dict[str, Any]:
    """Raise an error."""
    raise ValueError("no such luck")


def _first(values: tf.SparseTensor) -> tf.Tensor:
    """Return the first value in every row; a batch may lack values."""
    shape = tf.maximum(values.dense_shape, [0, 1])
    return tf.sparse.to_dense(tf.SparseTensor(values.indices, values.values, shape))[:, 0]
