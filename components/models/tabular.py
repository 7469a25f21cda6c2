"""Models for tables: wide_deep and mlp."""

from __future__ import annotations

import math
from typing import Any

import tf_keras

from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import model

layers = tf_keras.layers


@model("mlp")
def mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Numbers and embedded ids, concatenated, through the hidden layers."""
    given = _given(inputs)
    return tf_keras.Model(given, layers.Dense(outputs, name="logits")(_deep(config, inputs, given)), name="mlp")


@model("wide_deep")
def wide_deep(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """A weight per id beside the deep network (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems)."""
    given = _given(inputs)
    deep = layers.Dense(outputs, name="deep_logits")(_deep(config, inputs, given))
    wide = [
        layers.Embedding(ids.cardinality, outputs, embeddings_initializer="zeros", name=f"{name}_weight")(given[name])
        for name, ids in inputs.ids.items()
    ]
    logits = layers.Add(name="logits")([deep, *wide]) if wide else deep
    return tf_keras.Model(given, logits, name="wide_deep")


def _given(inputs: Inputs) -> dict[str, Any]:
    """An input layer for every feature: ids as [batch], numbers as [batch] or [batch, width]."""
    given = {name: layers.Input((), name=name, dtype="int64") for name in inputs.ids}
    for name, numbers in inputs.dense.items():
        given[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return given


def _deep(config: ModelConfig, inputs: Inputs, given: dict[str, Any]) -> Any:
    """The last hidden layer, shape [batch, config.hidden[-1]]."""
    parts = [
        layers.Reshape((1,), name=f"{name}_column")(given[name]) if numbers.width == 1 else given[name]
        for name, numbers in inputs.dense.items()
    ]
    parts += [
        layers.Embedding(
            ids.cardinality, _embedding_width(ids.cardinality, config.embedding), name=f"{name}_embedding"
        )(given[name])
        for name, ids in inputs.ids.items()
    ]
    hidden = layers.Concatenate(name="features")(parts) if len(parts) > 1 else parts[0]
    for depth, units in enumerate(config.hidden):
        hidden = layers.Dense(units, activation="relu", name=f"hidden_{depth}")(hidden)
        if config.dropout:
            hidden = layers.Dropout(config.dropout, name=f"dropout_{depth}")(hidden)
    return hidden


def _embedding_width(cardinality: int, widest: int) -> int:
    """A width that grows with the fourth root of the cardinality, at most `widest`."""
    return max(2, min(widest, math.ceil(3 * math.sqrt(math.sqrt(cardinality)))))
