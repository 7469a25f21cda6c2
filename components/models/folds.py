"""Combine the networks of a cross-validation. Every network is trained without one fold, and all predict together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras

from components.features.feature_names import FOLD

layers = tf_keras.layers


def cross_validated(build: Callable[[], tf_keras.Model], folds: int) -> tf_keras.Model:
    """Build one network per fold, with different initial weights, and combine them.

    Args:
      build: Function that builds a network from transformed features to logits of shape [batch, outputs] or [batch,
        members, outputs].
      folds: Number of folds.

    Returns:
      A network with the same inputs, and logits of shape [batch, folds, members, outputs].
    """
    networks = [build() for _ in range(folds)]
    tensors = {
        tensor.name: layers.Input(tensor.shape[1:], name=tensor.name, dtype=tensor.dtype)
        for tensor in networks[0].inputs
    }
    outputs = []
    for number, network in enumerate(networks):
        fold_network = tf_keras.Model(
            {tensor.name: tensor for tensor in network.inputs}, network.output, name=f"fold_{number}"
        )
        outputs.append(fold_network(tensors))
    stack = layers.Lambda(
        lambda logits: tf.stack([_add_members(tensor) for tensor in logits], axis=1), name="folds", dtype="float32"
    )
    return tf_keras.Model(tensors, stack(outputs), name="cross_validated")


def split(features: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
    """Split features into the inputs of a network and the folds of the rows, int64 of shape [batch], or None."""
    inputs = dict(features)
    return inputs, inputs.pop(FOLD, None)


def select_trained(logits: tf.Tensor, fold: tf.Tensor | None) -> tf.Tensor:
    """Select the logits of the networks that are trained on a row, which are all networks but one.

    Args:
      logits: Logits of shape [batch, folds, members, outputs]; without folds, of any shape.
      fold: Folds of the rows; int64, shape [batch]. If None, there are no folds, and the logits are returned unchanged.

    Returns:
      Logits of shape [batch, (folds - 1) * members, outputs].
    """
    if fold is None:
        return logits
    folds = logits.shape[1]
    trained_folds = (fold[:, tf.newaxis] + tf.range(1, folds, dtype=tf.int64)) % folds
    return tf.reshape(
        tf.gather(logits, trained_folds, batch_dims=1), [-1, (folds - 1) * logits.shape[2], logits.shape[3]]
    )


def select_held_out(logits: tf.Tensor, fold: tf.Tensor | None) -> tf.Tensor:
    """Select the logits of the network that is not trained on a row, shape [batch, members, outputs]."""
    return logits if fold is None else tf.gather(logits, fold, batch_dims=1)


def _add_members(logits: tf.Tensor) -> tf.Tensor:
    return logits if logits.shape.rank == 3 else logits[:, tf.newaxis]
