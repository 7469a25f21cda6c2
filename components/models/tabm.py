"""tabm: an ensemble of networks that share most weights, but are trained with separate losses."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers


def tabm(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build an ensemble of mlps (Gorishniy et al. 2024, TabM: Advancing Tabular Deep Learning with Parameter-Efficient
    Ensembling). The members share the matrices of the layers. Every member scales the inputs and outputs of a layer by
    two vectors (Wen et al. 2020, BatchEnsemble), and has a separate last layer.

    The logits have the shape [batch, members, outputs].
    """
    tensors = parts.input_layers(inputs)
    below = layers.RepeatVector(config.members, name="members")(parts.features(config, inputs, tensors))
    for depth, width in enumerate(config.hidden):
        # Initially, only the scales of the first layer differ between members.
        below = MemberDense(width, random_signs=depth == 0, name=f"hidden_{depth}")(below)
        if config.normalisation == "layer":
            below = layers.LayerNormalization(name=f"hidden_norm_{depth}")(below)
        below = layers.ReLU(name=f"hidden_relu_{depth}")(below)
        if config.dropout:
            below = layers.Dropout(config.dropout, name=f"hidden_dropout_{depth}")(below)
    return tf_keras.Model(tensors, MemberLogits(outputs, name="logits", dtype="float32")(below), name="tabm")


class MemberDense(tf_keras.layers.Layer):  # type: ignore[misc]
    """A dense layer with one matrix for all members, and two vectors per member: (x * into) @ kernel * out + bias.

    Input: [batch, members, width]. Output: [batch, members, units].

    Args:
      units: Width of the output.
      random_signs: Whether `into` is initialized with random signs instead of ones.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, units: int, random_signs: bool, **options: Any) -> None:
        super().__init__(**options)
        self.units, self.random_signs = units, random_signs

    def build(self, shape: tf.TensorShape) -> None:
        """Create the weights."""
        _, members, width = shape
        self.kernel = self.add_weight("kernel", (width, self.units), initializer="lecun_uniform")
        self.into = self.add_weight(
            "into", (members, width), initializer=_random_signs if self.random_signs else "ones"
        )
        self.out = self.add_weight("out", (members, self.units), initializer="ones")
        uniform = tf_keras.initializers.RandomUniform(-(width**-0.5), width**-0.5)
        self.bias = self.add_weight("bias", (members, self.units), initializer=uniform)

    def call(self, below: tf.Tensor) -> tf.Tensor:
        """Compute all members in one matrix product."""
        return tf.tensordot(below * self.into, self.kernel, 1) * self.out + self.bias


class MemberLogits(tf_keras.layers.Layer):  # type: ignore[misc]
    """The last layer, with one matrix per member. Input: [batch, members, width]. Output: [batch, members, outputs]."""

    def __init__(self, outputs: int, **options: Any) -> None:
        super().__init__(**options)
        self.outputs = outputs

    def build(self, shape: tf.TensorShape) -> None:
        """Create the weights."""
        _, members, width = shape
        uniform = tf_keras.initializers.RandomUniform(-(width**-0.5), width**-0.5)
        self.kernel = self.add_weight("kernel", (members, width, self.outputs), initializer=uniform)
        self.bias = self.add_weight("bias", (members, self.outputs), initializer="zeros")

    def call(self, below: tf.Tensor) -> tf.Tensor:
        """Multiply the vectors of the members by their matrices."""
        return tf.einsum("bmw,mwo->bmo", tf.cast(below, self.compute_dtype), self.kernel) + self.bias


def _random_signs(shape: tf.TensorShape, dtype: tf.DType | None = None, **_options: Any) -> tf.Tensor:
    """Draw 1 or -1, both with probability 1/2."""
    return tf.cast(2 * tf.random.uniform(shape, 0, 2, tf.int32) - 1, dtype)
