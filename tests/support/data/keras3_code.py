"""A user's module with a network of Keras 3, which has every kind of variable: trained, averaged, and a seed."""

from __future__ import annotations

from typing import Any

import keras

from components.models.keras3 import input_layers

layers = keras.layers


def build(inputs: Any, outputs: int) -> Any:
    """Return a network of Keras 3 over all features."""
    tensors = input_layers(inputs)
    parts = [layers.Reshape((numbers.width,))(tensors[name]) for name, numbers in inputs.dense.items()]
    for name, ids in inputs.ids.items():
        vectors = layers.Embedding(ids.cardinality, 4, name=f"embedding_of_{name}")(tensors[name])
        parts.append(layers.Reshape((4 * ids.values,))(vectors))
    hidden = layers.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(1e-4))(layers.Concatenate()(parts))
    hidden = layers.Dropout(0.1)(layers.BatchNormalization(momentum=0.9)(hidden))
    return keras.Model(tensors, layers.Dense(outputs, dtype="float32", name="logits")(hidden))
