"""Models for tables: mlp, wide_deep and dlrm.

Under a mixed precision policy of tf_keras the networks compute in its 16 bits; their variables stay float32, and so do
the logits and the sum that makes those of wide_deep.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from components.features.ops import Ids
from components.models import sharding
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import model

layers = tf_keras.layers


@model("mlp")
def mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Numbers and embedded ids, concatenated, through the hidden layers."""
    given = _given(inputs)
    return tf_keras.Model(given, _logits(outputs, _deep(config, inputs, given)), name="mlp")


@model("wide_deep")
def wide_deep(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """A weight per id beside the deep network (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems)."""
    given = _given(inputs)
    deep = _logits(outputs, _deep(config, inputs, given), name="deep_logits")
    if not inputs.ids:
        return tf_keras.Model(given, deep, name="wide_deep")
    weights = _table("wide", inputs.ids, outputs, "zeros", dtype="float32")([given[name] for name in inputs.ids])
    wide = layers.Lambda(lambda each: tf.reduce_sum(each, axis=1), name="wide_logits", dtype="float32")(weights)
    return tf_keras.Model(given, layers.Add(name="logits", dtype="float32")([deep, wide]), name="wide_deep")


@model("dlrm")
def dlrm(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Dot products between the vectors of all ids and one vector of all numbers, through the hidden layers (Naumov et
    al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems).

    The vector of the numbers joins its products on their way up. Without numbers the vectors of the ids do, or a
    single id would come to nothing.
    """
    given = _given(inputs)
    vectors, joining = [], []
    if inputs.ids:
        embedded = _table("embedding", inputs.ids, config.embedding, "uniform")([given[name] for name in inputs.ids])
        vectors.append(embedded)
        joining = [layers.Flatten(name="embedded")(embedded)]
    if inputs.dense:
        numbers = _concatenated(_numbers(inputs, given), "numbers_of_all")
        bottom = _hidden("bottom", (*config.hidden, config.embedding), config.dropout, numbers)
        vectors.append(layers.Reshape((1, config.embedding), name="bottom_vector")(bottom))
        joining = [bottom]
    if len(inputs.ids) + bool(inputs.dense) > 1:
        products = layers.Lambda(_dot_products, name="products")
        joining.append(products(_concatenated(vectors, "vectors", axis=1)))
    top = _hidden("hidden", config.hidden, config.dropout, _concatenated(joining, "features"))
    return tf_keras.Model(given, _logits(outputs, top), name="dlrm")


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of ids, as one variable in which each column has its own range of rows.

    One lookup and one optimizer update for all columns, instead of one for each, make a step several times cheaper.

    Input: a list of int64 tensors, each of shape [batch], in the order of `cardinalities`.
    Output: the layer's compute dtype, shape [batch, columns, width].
    """

    def __init__(self, cardinalities: Sequence[int], width: int, initializer: str, **options: Any) -> None:
        super().__init__(**options)
        self.cardinalities, self.width, self.initializer = tuple(cardinalities), width, initializer

    def build(self, _input_shape: Any) -> None:
        """Creates the variable."""
        rows = sum(self.cardinalities)
        # tf_keras cannot wrap a variable of several shards to cast itself, so `call` casts what it has looked up.
        with sharding.table():
            self.rows = self.add_weight(
                "rows", (rows, self.width), initializer=self.initializer, experimental_autocast=False
            )

    def call(self, ids: Sequence[Any]) -> Any:
        """Looks all columns up at once."""
        starts = tf.constant([0, *itertools.accumulate(self.cardinalities)][:-1], tf.int64)
        # Not tf.gather, which would first make one dense tensor of the shards on the parameter servers.
        return tf.cast(
            tf.nn.embedding_lookup(sharding.here(self.rows), tf.stack(ids, axis=1) + starts), self.compute_dtype
        )


def _given(inputs: Inputs) -> dict[str, Any]:
    """An input layer for every feature: ids as [batch], numbers as [batch] or [batch, width]."""
    given = {name: layers.Input((), name=name, dtype="int64") for name in inputs.ids}
    for name, numbers in inputs.dense.items():
        given[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return given


def _deep(config: ModelConfig, inputs: Inputs, given: dict[str, Any]) -> Any:
    """The last hidden layer, shape [batch, config.hidden[-1]]."""
    parts = _numbers(inputs, given)
    for width, group in _by_width(inputs.ids, config.embedding).items():
        embedded = _table(f"embedding_{width}", group, width, "uniform")([given[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    return _hidden("hidden", config.hidden, config.dropout, _concatenated(parts, "features"))


def _numbers(inputs: Inputs, given: dict[str, Any]) -> list[Any]:
    """The numbers as tensors of shape [batch, width], the single ones side by side in the first."""
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    parts = [given[name] for name in inputs.dense if name not in single]
    if not single:
        return parts
    stack = layers.Lambda(lambda columns: tf.stack(columns, axis=1), name="numbers")
    return [stack([given[name] for name in single]), *parts]


def _hidden(name: str, units: Sequence[int], dropout: float, below: Any) -> Any:
    """The last of several hidden layers, shape [batch, units[-1]]."""
    for depth, width in enumerate(units):
        below = layers.Dense(width, activation="relu", name=f"{name}_{depth}")(below)
        if dropout:
            below = layers.Dropout(dropout, name=f"{name}_dropout_{depth}")(below)
    return below


def _logits(outputs: int, hidden: Any, name: str = "logits") -> Any:
    return layers.Dense(outputs, name=name, dtype="float32")(hidden)


def _concatenated(parts: Sequence[Any], name: str, axis: int = -1) -> Any:
    return layers.Concatenate(axis, name=name)(parts) if len(parts) > 1 else parts[0]


def _dot_products(vectors: Any) -> Any:
    """The product of each pair: [batch, n, width] → [batch, n * (n - 1) / 2]."""
    count = vectors.shape[1]
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    return tf.gather(products, [row * count + column for row in range(count) for column in range(row)], axis=1)


def _table(name: str, ids: dict[str, Ids], width: int, initializer: str, **options: Any) -> Table:
    return Table([feature.cardinality for feature in ids.values()], width, initializer, name=name, **options)


def _by_width(ids: dict[str, Ids], widest: int) -> dict[int, dict[str, Ids]]:
    """The columns by the width of their embedding: a power of two that grows with the root of the cardinality."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        wanted = 2 ** math.ceil(math.log2(max(4.0, math.sqrt(feature.cardinality))))
        groups.setdefault(min(widest, wanted), {})[name] = feature
    return groups
