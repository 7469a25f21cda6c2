"""What models for tables are made of: input layers, tables of ids, hidden layers, logits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from components.features.ops import Ids
from components.models import sharding
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of ids, as one variable in which each column has its own range of rows.

    One lookup and one optimizer update for all columns, instead of one for each, make a step several times cheaper.

    Input: a list of int64 tensors, each of shape [batch] or [batch, values], in the order of `cardinalities`.
    Output: the layer's compute dtype, shape [batch, columns, width]; of several values the mean, 0 being none.

    Args:
      cardinalities: ids of each column.
      width: of an embedding.
      initializer: of tf_keras, or its name.
      features: the columns' names, by which a warm start finds the rows of an id again.
      options: of a layer.
    """

    def __init__(
        self, cardinalities: Sequence[int], width: int, initializer: Any, features: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.features = tuple(features)
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
        if all(column.shape.rank == 1 for column in ids):
            return self._rows(tf.stack(ids, axis=1) + starts)
        several = [column[:, tf.newaxis] if column.shape.rank == 1 else column for column in ids]
        found = self._rows(
            tf.concat([column + start for column, start in zip(several, tf.unstack(starts), strict=True)], axis=1)
        )
        parts = tf.split(found, [column.shape[1] for column in several], axis=1)
        return tf.stack([_mean(rows, column) for rows, column in zip(parts, several, strict=True)], axis=1)

    def _rows(self, places: Any) -> Any:
        """The rows at `places`: [batch, n] → [batch, n, width]."""
        # Not tf.gather, which would first make one dense tensor of the shards on the parameter servers.
        return tf.cast(tf.nn.embedding_lookup(sharding.here(self.rows), places), self.compute_dtype)


def _mean(rows: Any, ids: Any) -> Any:
    """The mean of the rows of an example's ids: [batch, n, width] → [batch, width]; of one, its row."""
    if ids.shape[1] == 1:
        return rows[:, 0]
    counted = tf.cast(tf.not_equal(ids, 0), rows.dtype)[:, :, tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(rows * counted, axis=1), tf.reduce_sum(counted, axis=1))


def input_layers(inputs: Inputs) -> dict[str, Any]:
    """An input layer for every feature: one of its own width, or [batch] where that is 1."""
    given = {
        name: layers.Input(() if ids.values == 1 else (ids.values,), name=name, dtype="int64")
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        given[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return given


def features(config: ModelConfig, inputs: Inputs, given: dict[str, Any]) -> Any:
    """All that the model reads, side by side: numbers, then embedded ids; shape [batch, width]."""
    parts = numbers(inputs, given)
    for width, group in _by_width(inputs.ids, config).items():
        embedded = table(f"embedding_{width}", group, width, "uniform")([given[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    return concatenated(parts, "features")


def numbers(inputs: Inputs, given: dict[str, Any]) -> list[Any]:
    """The numbers as tensors of shape [batch, width], the single ones side by side in the first."""
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    parts = [given[name] for name in inputs.dense if name not in single]
    if not single:
        return parts
    stack = layers.Lambda(lambda columns: tf.stack(columns, axis=1), name="numbers")
    return [stack([given[name] for name in single]), *parts]


def hidden(name: str, config: ModelConfig, below: Any, last: int | None = None) -> Any:
    """The hidden layers of the config, and one more of `last` units if that is given: shape [batch, units of the last].

    With normalisation: layer each one's outputs are normalised before the activation (Ba et al. 2016, Layer
    Normalization).
    """
    for depth, width in enumerate((*config.hidden, *([last] if last else []))):
        if config.normalisation == "layer":
            below = layers.Dense(width, name=f"{name}_{depth}")(below)
            below = layers.LayerNormalization(name=f"{name}_norm_{depth}")(below)
            below = layers.ReLU(name=f"{name}_relu_{depth}")(below)
        else:
            below = layers.Dense(width, activation="relu", name=f"{name}_{depth}")(below)
        if config.dropout:
            below = layers.Dropout(config.dropout, name=f"{name}_dropout_{depth}")(below)
    return below


def logits(outputs: int, below: Any, name: str = "logits") -> Any:
    """The last layer, in float32 whatever the policy: shape [batch, outputs]."""
    return layers.Dense(outputs, name=name, dtype="float32")(below)


def weights_of_ids(inputs: Inputs, given: dict[str, Any], outputs: int) -> Any:
    """The sum of a weight per id, in float32: shape [batch, outputs]."""
    weights = table("wide", inputs.ids, outputs, "zeros", dtype="float32")([given[name] for name in inputs.ids])
    return layers.Lambda(lambda each: tf.reduce_sum(each, axis=1), name="wide_logits", dtype="float32")(weights)


def concatenated(parts: Sequence[Any], name: str, axis: int = -1) -> Any:
    """Several tensors as one; a single one as it is."""
    return layers.Concatenate(axis, name=name)(parts) if len(parts) > 1 else parts[0]


def table(name: str, ids: dict[str, Ids], width: int, initializer: Any, **options: Any) -> Table:
    """A table for these features."""
    cardinalities = [feature.cardinality for feature in ids.values()]
    return Table(cardinalities, width, initializer, tuple(ids), name=name, **options)


def _by_width(ids: dict[str, Ids], config: ModelConfig) -> dict[int, dict[str, Ids]]:
    """The columns by the width of their embedding."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        groups.setdefault(config.width(feature.cardinality, feature.width), {})[name] = feature
    return groups
