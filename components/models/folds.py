"""The networks of a cross-validation as one: each is trained without one fold of the rows, and all predict together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras

from components.features.feature_names import FOLD

layers = tf_keras.layers


def cross_validated(build: Callable[[], tf_keras.Model], folds: int) -> tf_keras.Model:
    """Build a network for each fold, with initial weights of its own.

    Args:
      build: Makes a network from transformed features to logits, [batch, outputs] or [batch, members, outputs].
      folds: Their number.

    Returns:
      A network with the same inputs, and logits of shape [batch, folds, members, outputs].
    """
    networks = [build() for _ in range(folds)]
    tensors = {
        tensor.name: layers.Input(tensor.shape[1:], name=tensor.name, dtype=tensor.dtype)
        for tensor in networks[0].inputs
    }
    each = []
    for number, network in enumerate(networks):
        named = tf_keras.Model(
            {tensor.name: tensor for tensor in network.inputs}, network.output, name=f"fold_{number}"
        )
        each.append(named(tensors))
    together = layers.Lambda(
        lambda logits: tf.stack([_members(one) for one in logits], axis=1), name="folds", dtype="float32"
    )
    return tf_keras.Model(tensors, together(each), name="cross_validated")


def split(features: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
    """Return the inputs of a network, and the fold of each row, int64 [batch], if there are folds."""
    inputs = dict(features)
    return inputs, inputs.pop(FOLD, None)


def trained(logits: tf.Tensor, fold: tf.Tensor | None) -> tf.Tensor:
    """Return the logits of the networks that are trained on each row: all but one.

    Args:
      logits: Of shape [batch, folds, members, outputs]; without folds, of any shape.
      fold: That of each row, int64 [batch]; None: there are no folds, and the logits are returned as they are.

    Returns:
      Shape [batch, (folds - 1) * members, outputs].
    """
    if fold is None:
        return logits
    folds = logits.shape[1]
    others = (fold[:, tf.newaxis] + tf.range(1, folds, dtype=tf.int64)) % folds
    return tf.reshape(tf.gather(logits, others, batch_dims=1), [-1, (folds - 1) * logits.shape[2], logits.shape[3]])


def held_out(logits: tf.Tensor, fold: tf.Tensor | None) -> tf.Tensor:
    """Return the logits of the network that is not trained on each row, [batch, members, outputs]; see `trained`."""
    return logits if fold is None else tf.gather(logits, fold, batch_dims=1)


def _members(logits: tf.Tensor) -> tf.Tensor:
    return logits if logits.shape.rank == 3 else logits[:, tf.newaxis]
