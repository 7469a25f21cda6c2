"""The model kind `resnet`: a residual network for tables (Gorishniy et al. 2021, Revisiting Deep Learning Models)."""

from __future__ import annotations

import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers


def build_resnet(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Return a network of blocks whose output is added to their input; `hidden` lists their units."""
    tensors = parts.input_layers(inputs)
    width = config.hidden[0]
    values = layers.Dense(width, name="stem")(parts.features(config, inputs, tensors))
    for number, units in enumerate(config.hidden):
        block = layers.Dense(units, "relu", name=f"block_{number}_up")(values)
        values = layers.Add(name=f"block_{number}_sum")([values, layers.Dense(width, name=f"block_{number}")(block)])
    return tf_keras.Model(tensors, parts.logits(outputs, values), name="resnet")
