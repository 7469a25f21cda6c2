"""A network for anomaly detection, which predicts the features of some columns from the other columns."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

_GROUPS = 8
"""Maximum number of groups of columns; a row is computed once per group."""
_MOST_IDS = 1000
"""Maximum number of classes of a column of IDs. More IDs are predicted by their remainders."""
_CLIP = 10.0
"""Bound on numbers that are predicted, so that single outliers do not dominate the training."""
_SPREAD = 3.0
"""Bound on the logarithm of a predicted standard deviation."""


def autoencoder(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a masked autoencoder. The only logit is the reconstruction error of a row.

    The columns are divided into up to eight groups. The features of one group at a time are set to 0, and hidden layers
    predict them from the other features: the mean and the deviation of a normal distribution for a number, and
    probabilities for an ID. The error is the mean negative log-likelihood of the columns' features, in nats. A network
    that reads what it predicts could copy it, whatever its width; here, a low error requires knowledge about how the
    columns depend on each other (Yin et al. 2024, MCM: Masked Cell Modeling for Anomaly Detection in Tabular Data, who
    learn the masks).

    Args:
      config: Section `model` of the config.
      inputs: Transformed features, without images and weighted IDs.
      outputs: Number of logits, 1.

    Raises:
      ValueError: If `outputs` is not 1.
    """
    if outputs != 1:
        raise ValueError(f"autoencoder: expected 1 output, received {outputs}")
    tensors = parts.input_layers(inputs)
    groups = _divide(inputs)
    values = parts.features(config, inputs, tensors)
    mask = [[float(groups[name] == group) for name in _list_positions(config, inputs)] for group in _numbers(groups)]
    hidden = parts.hidden("hidden", config, MaskedCopies(mask, name="masked")(values))
    errors = []
    for group in _numbers(groups):
        below = layers.Lambda(lambda rows, at=group: rows[:, at], name=f"group_{group}")(hidden)
        for name in (name for name in inputs.features if groups[name] == group):
            width = inputs.dense[name].width if name in inputs.dense else None
            classes = 2 * width if width else min(inputs.ids[name].cardinality, _MOST_IDS)
            predicted = layers.Dense(classes, name=f"{name}_predicted", dtype="float32")(below)
            layer = NumberErrors if width else IdErrors
            errors.append(layer(name=f"{name}_error", dtype="float32")([tensors[name], predicted]))
    mean = layers.Average(name="logits", dtype="float32")(errors) if len(errors) > 1 else errors[0]
    return tf_keras.Model(tensors, mean, name="autoencoder")


class MaskedCopies(tf_keras.layers.Layer):  # type: ignore[misc]
    """Copies rows once per group, with the features of the group set to 0, and adds the number of the group.

    Input: [batch, width]. Output: [batch, groups, width + groups].

    Args:
      mask: 1 for the features of a group, otherwise 0; [groups][width].
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, mask: list[list[float]], **options: Any) -> None:
        super().__init__(**options)
        self.mask = mask

    def get_config(self) -> dict[str, Any]:
        """Return the arguments from which the layer can be recreated; see tf_keras.layers.Layer."""
        return {**super().get_config(), "mask": self.mask}

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        """Copy the rows."""
        copies = rows[:, tf.newaxis] * (1 - tf.constant(self.mask, rows.dtype))
        groups = tf.eye(len(self.mask), batch_shape=[tf.shape(rows)[0]], dtype=rows.dtype)
        return tf.concat([copies, groups], axis=2)


class NumberErrors(tf_keras.layers.Layer):  # type: ignore[misc]
    """The mean negative log-likelihood of numbers under normal distributions, without the constant.

    Input: numbers [batch] or [batch, width], and means followed by logarithms of deviations [batch, 2 * width]. Output:
    [batch, 1].
    """

    def call(self, values: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Compute the errors."""
        numbers, predicted = values
        mean, spread = tf.split(predicted, 2, axis=1)
        numbers = tf.clip_by_value(tf.reshape(numbers, tf.shape(mean)), -_CLIP, _CLIP)
        logarithm = _SPREAD * tf.tanh(spread / _SPREAD)
        losses = logarithm + tf.square((numbers - mean) * tf.exp(-logarithm)) / 2
        return tf.reduce_mean(losses, axis=1, keepdims=True)


class IdErrors(tf_keras.layers.Layer):  # type: ignore[misc]
    """The crossentropy of IDs, or the mean over the IDs of a row without padding, 0 if there is only padding.

    Input: IDs [batch] or [batch, values], and logits [batch, classes]. Output: [batch, 1].
    """

    def call(self, values: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Compute the errors."""
        ids, logits = values
        classes = logits.shape[1]
        if ids.shape.rank == 1:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids % classes, logits)
            return losses[:, tf.newaxis]
        losses = -tf.gather(tf.nn.log_softmax(logits), ids % classes, axis=1, batch_dims=1)
        is_value = tf.cast(tf.not_equal(ids, 0), losses.dtype)
        total = tf.reduce_sum(losses * is_value, axis=1, keepdims=True)
        return tf.math.divide_no_nan(total, tf.reduce_sum(is_value, axis=1, keepdims=True))


def _divide(inputs: Inputs) -> dict[str, int]:
    """Return feature → number of its group. Features of the same column are in the same group."""
    columns = {name: inputs.columns.get(name, (name,)) for name in inputs.features}
    sources = [*dict.fromkeys(columns.values())]
    count = max(1, math.ceil(len(sources) / math.ceil(len(sources) / _GROUPS)))
    numbers = {source: number % count for number, source in enumerate(sources)}
    return {name: numbers[source] for name, source in columns.items()}


def _numbers(groups: dict[str, int]) -> range:
    return range(max(groups.values()) + 1)


def _list_positions(config: ModelConfig, inputs: Inputs) -> list[str]:
    """Return the name of the feature at each position of `layers.features`."""
    dense = inputs.dense
    single = [name for name, numbers in dense.items() if numbers.width == 1]
    wide = [name for name, numbers in dense.items() if numbers.width != 1 for _ in range(numbers.width)]
    embedded = [
        name for width, group in parts.by_width(inputs.ids, config).items() for name in group for _ in range(width)
    ]
    return [*single, *wide, *embedded]
