"""Models for tables: wide_deep and mlp."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from components.features.ops import Ids
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
    if not inputs.ids:
        return tf_keras.Model(given, deep, name="wide_deep")
    weights = _table("wide", inputs.ids, outputs, "zeros")([given[name] for name in inputs.ids])
    wide = layers.Lambda(lambda each: tf.reduce_sum(each, axis=1), name="wide_logits")(weights)
    return tf_keras.Model(given, layers.Add(name="logits")([deep, wide]), name="wide_deep")


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of ids, as one variable in which each column has its own range of rows.

    One lookup and one optimizer update for all columns, instead of one for each, make a step several times cheaper.

    Input: a list of int64 tensors, each of shape [batch], in the order of `cardinalities`.
    Output: float32, shape [batch, columns, width].
    """

    def __init__(self, cardinalities: Sequence[int], width: int, initializer: str, **options: Any) -> None:
        super().__init__(**options)
        self.cardinalities, self.width, self.initializer = tuple(cardinalities), width, initializer

    def build(self, _input_shape: Any) -> None:
        """Creates the variable."""
        rows = sum(self.cardinalities)
        self.rows = self.add_weight("rows", (rows, self.width), initializer=self.initializer)

    def call(self, ids: Sequence[Any]) -> Any:
        """Looks all columns up at once."""
        starts = tf.constant([0, *itertools.accumulate(self.cardinalities)][:-1], tf.int64)
        return tf.gather(self.rows, tf.stack(ids, axis=1) + starts)


def _given(inputs: Inputs) -> dict[str, Any]:
    """An input layer for every feature: ids as [batch], numbers as [batch] or [batch, width]."""
    given = {name: layers.Input((), name=name, dtype="int64") for name in inputs.ids}
    for name, numbers in inputs.dense.items():
        given[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return given


def _deep(config: ModelConfig, inputs: Inputs, given: dict[str, Any]) -> Any:
    """The last hidden layer, shape [batch, config.hidden[-1]]."""
    parts = []
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    if single:
        stack = layers.Lambda(lambda columns: tf.stack(columns, axis=1), name="numbers")
        parts.append(stack([given[name] for name in single]))
    parts += [given[name] for name in inputs.dense if name not in single]
    for width, group in _by_width(inputs.ids, config.embedding).items():
        embedded = _table(f"embedding_{width}", group, width, "uniform")([given[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    hidden = layers.Concatenate(name="features")(parts) if len(parts) > 1 else parts[0]
    for depth, units in enumerate(config.hidden):
        hidden = layers.Dense(units, activation="relu", name=f"hidden_{depth}")(hidden)
        if config.dropout:
            hidden = layers.Dropout(config.dropout, name=f"dropout_{depth}")(hidden)
    return hidden


def _table(name: str, ids: dict[str, Ids], width: int, initializer: str) -> Table:
    return Table([feature.cardinality for feature in ids.values()], width, initializer, name=name)


def _by_width(ids: dict[str, Ids], widest: int) -> dict[int, dict[str, Ids]]:
    """The columns by the width of their embedding: a power of two that grows with the root of the cardinality."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        wanted = 2 ** math.ceil(math.log2(max(4.0, math.sqrt(feature.cardinality))))
        groups.setdefault(min(widest, wanted), {})[name] = feature
    return groups
