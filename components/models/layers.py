"""The parts of models for tabular data: input layers, tables of ids, hidden layers, logits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import local_copy
from components.features.ops import Ids
from components.models import sharding
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

Tensors = dict[str, tf.Tensor]
"""Feature → symbolic tensor of its input layer."""


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of ids, as one variable in which each column has its own range of rows.

    One lookup and one optimizer update for all columns, instead of one for each, make a step several times faster.

    Input: a list of int64 tensors, each of shape [batch] or [batch, values], in the order of `ranges`.
    Output: the layer's compute dtype, shape [batch, columns, width]. The embedding of several values is
    their mean, without those with id 0. With `events`, a list: the columns that are not among them, as above, if there
    are any; then the embeddings of each of them, [batch, values, width]. `call` also takes some of the columns only.

    Args:
      cardinalities: the number of ids of each range.
      width: of an embedding.
      initializer: an initializer of tf_keras, or its name.
      features: the names of the ranges, with which a warm start matches the rows of earlier models.
      ranges: the range of each input; default: each input has its own.
      events: the numbers of the inputs whose values are not averaged.
      options: of tf_keras.layers.Layer.
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        width: int,
        initializer: str | tf_keras.initializers.Initializer,
        features: Sequence[str] = (),
        ranges: Sequence[int] | None = None,
        events: Sequence[int] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.features = tuple(features)
        self.ranges = tuple(range(len(cardinalities)) if ranges is None else ranges)
        self.events = tuple(events)
        self.cardinalities, self.width, self.initializer = tuple(cardinalities), width, initializer

    def build(self, _input_shape: Any) -> None:
        """Creates the variable."""
        rows = sum(self.cardinalities)
        # tf_keras cannot cast a sharded variable automatically, so `call` casts the rows.
        with sharding.table():
            self.rows = self.add_weight(
                "rows", (rows, self.width), initializer=self.initializer, experimental_autocast=False
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, from which the layer can be made again; see tf_keras.layers.Layer."""
        return {
            **super().get_config(),
            "cardinalities": self.cardinalities,
            "width": self.width,
            "initializer": tf_keras.initializers.serialize(tf_keras.initializers.get(self.initializer)),
            "features": self.features,
            "ranges": self.ranges,
            "events": self.events,
        }

    def call(self, ids: Sequence[tf.Tensor], columns: Sequence[int] | None = None) -> tf.Tensor | list[tf.Tensor]:
        """Looks up the rows of all columns, or of those with these numbers."""
        # A copy of a model has a single tensor instead of a list of one.
        ids = tf.nest.flatten(ids)
        columns = range(len(self.ranges)) if columns is None else columns
        of_ranges = [0, *itertools.accumulate(self.cardinalities)][:-1]
        starts = tf.constant([of_ranges[self.ranges[each]] for each in columns], tf.int64)
        if all(column.shape.rank == 1 for column in ids):
            return self._rows(tf.stack(ids, axis=1) + starts)
        matrices = [column[:, tf.newaxis] if column.shape.rank == 1 else column for column in ids]
        rows_of_all = self._rows(
            tf.concat([column + start for column, start in zip(matrices, tf.unstack(starts), strict=True)], axis=1)
        )
        parts = tf.split(rows_of_all, [column.shape[1] for column in matrices], axis=1)
        means = [
            _mean(rows, column)
            for number, rows, column in zip(columns, parts, matrices, strict=True)
            if number not in self.events
        ]
        of_columns = [tf.stack(means, axis=1)] if means else []
        of_events = [rows for number, rows in zip(columns, parts, strict=True) if number in self.events]
        return [*of_columns, *of_events] if of_events else of_columns[0]

    def _rows(self, indices: tf.Tensor) -> tf.Tensor:
        """The rows with these indices: int64 [batch, n] → [batch, n, width]."""
        # Not tf.gather, which would concatenate the shards of the parameter servers first.
        return tf.cast(tf.nn.embedding_lookup(local_copy(self.rows), indices), self.compute_dtype)


def _mean(rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """The mean of an example's rows, [batch, n, width] → [batch, width], where the id, [batch, n], is not 0."""
    if ids.shape[1] == 1:
        return rows[:, 0]
    counted = tf.cast(tf.not_equal(ids, 0), rows.dtype)[:, :, tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(rows * counted, axis=1), tf.reduce_sum(counted, axis=1))


def input_layers(inputs: Inputs) -> Tensors:
    """An input layer for every feature: [batch, width], or [batch] if the width is 1."""
    tensors = {
        name: layers.Input(() if ids.values == 1 else (ids.values,), name=name, dtype="int64")
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        tensors[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return tensors


def features(config: ModelConfig, inputs: Inputs, tensors: Tensors) -> tf.Tensor:
    """The concatenated features: numbers, then embedded ids; shape [batch, width]."""
    parts = numbers(inputs, tensors)
    for width, group in by_width(inputs.ids, config).items():
        embedded = table(f"embedding_{width}", group, width, "uniform")([tensors[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    return concatenated(parts, "features")


def numbers(inputs: Inputs, tensors: Tensors, name: str = "numbers") -> list[tf.Tensor]:
    """The numbers as tensors of shape [batch, width]; the first one contains all features of width 1, by this name."""
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    parts = [tensors[name] for name in inputs.dense if name not in single]
    if not single:
        return parts
    stack = layers.Lambda(lambda columns: tf.stack(tf.nest.flatten(columns), axis=1), name=name)
    return [stack([tensors[name] for name in single]), *parts]


def hidden(name: str, config: ModelConfig, below: tf.Tensor, last: int | None = None) -> tf.Tensor:
    """The hidden layers of the config.

    With `normalisation: layer`, outputs are normalised before the activation (Ba et al. 2016, Layer Normalization).

    Args:
      name: prefix of the layers' names.
      config: units, dropout, normalisation.
      below: the input, shape [batch, width].
      last: units of an additional layer; None for no such layer.

    Returns:
      Shape [batch, units of the last layer].
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


def logits(outputs: int, below: tf.Tensor, name: str = "logits") -> tf.Tensor:
    """The last layer, always in float32: shape [batch, outputs]."""
    return layers.Dense(outputs, name=name, dtype="float32")(below)


def weights_of_ids(inputs: Inputs, tensors: Tensors, outputs: int) -> tf.Tensor:
    """The sum of the weights of all ids, in float32: shape [batch, outputs]."""
    # What an event of a history says is not what the same id says as the value of another column.
    own = {name: replace(ids, shares=None) for name, ids in inputs.ids.items()}
    weights = table("wide", own, outputs, "zeros", dtype="float32")([tensors[name] for name in own])
    return layers.Lambda(lambda each: tf.reduce_sum(each, axis=1), name="wide_logits", dtype="float32")(weights)


def concatenated(parts: Sequence[tf.Tensor], name: str, axis: int = -1) -> tf.Tensor:
    """Concatenates tensors; a single one is returned as it is."""
    return layers.Concatenate(axis, name=name)(parts) if len(parts) > 1 else parts[0]


def table(
    name: str, ids: dict[str, Ids], width: int, initializer: str | tf_keras.initializers.Initializer, **options: Any
) -> Table:
    """A table for these features; the options are those of Table."""
    owners = {feature: each.shares if each.shares in ids else feature for feature, each in ids.items()}
    ranges = {owner: ids[owner].cardinality for owner in dict.fromkeys(owners.values())}
    numbers = {owner: number for number, owner in enumerate(ranges)}
    shared = [numbers[owner] for owner in owners.values()]
    return Table(tuple(ranges.values()), width, initializer, tuple(ranges), shared, name=name, **options)


def by_width(ids: dict[str, Ids], config: ModelConfig) -> dict[int, dict[str, Ids]]:
    """Width of an embedding → the columns with it."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        groups.setdefault(config.width(feature.cardinality, feature.width), {})[name] = feature
    return groups
