"""tabm: many networks in one, which share nearly all weights and learn each by itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.models import parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import model

layers = tf_keras.layers


@model("tabm")
def tabm(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """An ensemble of mlps (Gorishniy et al. 2024, TabM: Advancing Tabular Deep Learning with Parameter-Efficient
    Ensembling). All members share each layer's matrix; each scales what goes in and what comes out by vectors of its
    own (Wen et al. 2020, BatchEnsemble), and has its own last layer.

    Its logits have the shape [batch, members, outputs].
    """
    given = parts.input_layers(inputs)
    below = layers.RepeatVector(config.members, name="members")(parts.features(config, inputs, given))
    for depth, width in enumerate(config.hidden):
        # Members begin apart in what they see of the features; the deeper layers learn to differ.
        below = MemberDense(width, apart=depth == 0, name=f"hidden_{depth}")(below)
        if config.normalisation == "layer":
            below = layers.LayerNormalization(name=f"hidden_norm_{depth}")(below)
        below = layers.ReLU(name=f"hidden_relu_{depth}")(below)
        if config.dropout:
            below = layers.Dropout(config.dropout, name=f"hidden_dropout_{depth}")(below)
    return tf_keras.Model(given, MemberLogits(outputs, name="logits", dtype="float32")(below), name="tabm")


class MemberDense(tf_keras.layers.Layer):  # type: ignore[misc]
    """One matrix for all members, between two vectors of each: (x * into) @ kernel * out + bias.

    Input: [batch, members, width]. Output: [batch, members, units].
    """

    def __init__(self, units: int, apart: bool, **options: Any) -> None:
        super().__init__(**options)
        self.units, self.apart = units, apart

    def build(self, shape: Any) -> None:
        """Creates the weights."""
        _, members, width = shape
        self.kernel = self.add_weight("kernel", (width, self.units), initializer="lecun_uniform")
        self.into = self.add_weight("into", (members, width), initializer=_signs if self.apart else "ones")
        self.out = self.add_weight("out", (members, self.units), initializer="ones")
        uniform = tf_keras.initializers.RandomUniform(-(width**-0.5), width**-0.5)
        self.bias = self.add_weight("bias", (members, self.units), initializer=uniform)

    def call(self, below: Any) -> Any:
        """All members at once, by one product of matrices."""
        return tf.tensordot(below * self.into, self.kernel, 1) * self.out + self.bias


class MemberLogits(tf_keras.layers.Layer):  # type: ignore[misc]
    """A last layer of each member's own. Input: [batch, members, width]. Output: [batch, members, outputs]."""

    def __init__(self, outputs: int, **options: Any) -> None:
        super().__init__(**options)
        self.outputs = outputs

    def build(self, shape: Any) -> None:
        """Creates the weights."""
        _, members, width = shape
        uniform = tf_keras.initializers.RandomUniform(-(width**-0.5), width**-0.5)
        self.kernel = self.add_weight("kernel", (members, width, self.outputs), initializer=uniform)
        self.bias = self.add_weight("bias", (members, self.outputs), initializer="zeros")

    def call(self, below: Any) -> Any:
        """Each member by its own matrix."""
        return tf.einsum("bmw,mwo->bmo", tf.cast(below, self.compute_dtype), self.kernel) + self.bias


def _signs(shape: Any, dtype: Any = None, **_options: Any) -> Any:
    """1 or -1, by chance."""
    return tf.cast(2 * tf.random.uniform(shape, 0, 2, tf.int32) - 1, dtype)
