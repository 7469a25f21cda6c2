"""final_mlp: two mlps over differently weighted features, and a bilinear form of their outputs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers


def final_mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build two mlps over weighted features, and multiply their outputs (Mao et al. 2023, FinalMLP: An Enhanced
    Two-Stream MLP Model for CTR Prediction).

    A number between 0 and 2 weights every feature of an mlp. It is a function of the columns of `first_gate` or
    `second_gate`, or a learned constant. The logit adds linear functions of both outputs and one bilinear form per
    head, which multiplies a part of the first output with a part of the second output.
    """
    tensors = parts.input_layers(inputs)
    features = parts.features(config, inputs, tensors)
    streams = [
        parts.hidden(f"{name}_hidden", config, _weight(config, inputs, name, features, columns))
        for name, columns in (("first", config.first_gate), ("second", config.second_gate))
    ]
    first, second = streams
    terms = [
        parts.logits(outputs, first, name="first_logits"),
        layers.Dense(outputs, use_bias=False, name="second_logits", dtype="float32")(second),
        BilinearForms(outputs, config.heads, name="products", dtype="float32")(streams),
    ]
    return tf_keras.Model(tensors, layers.Add(name="logits", dtype="float32")(terms), name="final_mlp")


def _weight(
    config: ModelConfig, inputs: Inputs, stream: str, features: tf.Tensor, columns: Collection[str]
) -> tf.Tensor:
    """Multiply the features of a stream, [batch, width], by numbers between 0 and 2.

    Args:
      config: Config with the widths of embeddings and hidden layers.
      inputs: Transformed features.
      stream: Prefix of the names of the layers.
      features: All features.
      columns: Columns of the features that the numbers depend on; if empty, the numbers are constants.
    """
    width = features.shape[-1]
    if not columns:
        return ConstantGate(name=f"{stream}_gate")(features)
    positions = parts.list_positions(config, inputs, columns)
    pick = layers.Lambda(lambda values: tf.gather(values, positions, axis=1), name=f"{stream}_gate_features")
    below = layers.Dense(config.hidden[0], activation="relu", name=f"{stream}_gate_hidden")(pick(features))
    shares = layers.Dense(width, activation="sigmoid", name=f"{stream}_gate")(below)
    return layers.Lambda(lambda pair: 2 * pair[0] * pair[1], name=f"{stream}_features")([features, shares])


class ConstantGate(tf_keras.layers.Layer):  # type: ignore[misc]
    """Multiplies every column by a learned number between 0 and 2, initially 1. Input and output: [batch, width]."""

    def build(self, shape: tf.TensorShape) -> None:
        """Create the weights."""
        self.gate = self.add_weight("gate", (shape[-1],), initializer="zeros")

    def call(self, below: tf.Tensor) -> tf.Tensor:
        """Multiply."""
        return 2 * tf.sigmoid(self.gate) * below


class BilinearForms(tf_keras.layers.Layer):  # type: ignore[misc]
    """The sum of bilinear forms of equal parts of two vectors.

    Input: two tensors of shape [batch, width]. Output: [batch, outputs].

    Args:
      outputs: Number of outputs, each with a matrix per part.
      heads: Number of parts, a divisor of the width.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, outputs: int, heads: int, **options: Any) -> None:
        super().__init__(**options)
        self.outputs, self.heads = outputs, heads

    def build(self, shapes: list[tf.TensorShape]) -> None:
        """Create the weights."""
        width = shapes[0][-1] // self.heads
        # The variance of a matrix with `width` rows and columns (Glorot and Bengio 2010). A device of a mesh has the
        # whole variable, because its name is not `kernel`.
        uniform = tf_keras.initializers.RandomUniform(-((3 / width) ** 0.5), (3 / width) ** 0.5)
        self.matrices = self.add_weight("matrices", (self.heads, width, width, self.outputs), initializer=uniform)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments from which the layer can be recreated; see tf_keras.layers.Layer."""
        return {**super().get_config(), "outputs": self.outputs, "heads": self.heads}

    def call(self, streams: list[tf.Tensor]) -> tf.Tensor:
        """Multiply the parts."""
        # Matrix products by head: the converter for devices cannot divide an einsum with several outputs.
        first, second = (
            tf.transpose(
                tf.reshape(tf.cast(stream, self.compute_dtype), [-1, self.heads, stream.shape[-1] // self.heads]),
                [1, 0, 2],
            )
            for stream in streams
        )
        width = first.shape[-1]
        products = tf.matmul(first, tf.reshape(self.matrices, [self.heads, width, width * self.outputs]))
        products = tf.reshape(products, [self.heads, -1, width, self.outputs])
        return tf.reduce_sum(products * second[..., tf.newaxis], axis=[0, 2])
