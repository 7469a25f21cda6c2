"""The parts of models for tabular data: input layers, tables of ids, hidden layers, logits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import local_copy
from components.features.feature_spec import Ids
from components.models import sharding
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

Tensors = dict[str, tf.Tensor]
"""Feature → symbolic tensor of its input layer."""


class Divided(NamedTuple):
    """How the ids of a range are divided into rows.

    Attributes:
      ids: Number of ids.
      quotients: The greatest number of their quotients; 0: each id has a row.
      is_sum: Whether a vector is the sum of its two rows, otherwise their product.
    """

    ids: int
    quotients: int
    is_sum: bool

    @property
    def rows(self) -> int:
        """The number of remainders, or of ids."""
        return -(-self.ids // self.quotients) if self.quotients else self.ids

    @property
    def parts(self) -> int:
        """The number of quotients that there are."""
        return -(-self.ids // self.rows) if self.quotients else 0


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of ids, as one variable in which each column has its own range of rows.

    One lookup and one optimizer update for all columns, instead of one for each, make a step several times faster.

    A range with quotients has a row for each remainder of an id only, and further rows for the quotients; a vector is
    composed of both (Shi et al. 2020, Compositional Embeddings Using Complementary Partitions for Memory-Efficient
    Recommendation Systems, quotient-remainder trick). The rows of quotients begin as 1 for a product and as 0 for a
    sum, so that at first ids with the same remainder have the same vector.

    Input: a list of int64 tensors, each of shape [batch] or [batch, values], in the order of `ranges`.
    Output: the layer's compute dtype, shape [batch, columns, width]. The embedding of several values is
    their mean, without those with id 0. With `events`, a list: the columns that are not among them, as above, if there
    are any; then the embeddings of each of them, [batch, values, width]. `call` also takes some of the columns only.

    Args:
      cardinalities: The number of ids of each range.
      width: Of an embedding.
      initializer: An initializer of tf_keras, or its name.
      features: The names of the ranges, with which a warm start matches the rows of earlier models.
      ranges: The range of each input; default: each input has its own.
      events: The numbers of the inputs whose values are not averaged.
      quotients: Of each range, the number of quotients, 0 for one with a row per id; default: 0 for all.
      sums: Of each range, whether a vector is the sum of its two rows, otherwise their product.
      options: Of tf_keras.layers.Layer.
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        width: int,
        initializer: str | tf_keras.initializers.Initializer,
        features: Sequence[str] = (),
        ranges: Sequence[int] | None = None,
        events: Sequence[int] = (),
        quotients: Sequence[int] = (),
        sums: Sequence[bool] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.divided = tuple(
            Divided(ids, int(parts), is_sum)
            for ids, parts, is_sum in itertools.zip_longest(cardinalities, quotients, sums, fillvalue=False)
        )
        self.features = tuple(features)
        self.ranges = tuple(range(len(cardinalities)) if ranges is None else ranges)
        self.events = tuple(events)
        self.cardinalities, self.width, self.initializer = tuple(cardinalities), width, initializer

    def build(self, _input_shape: Any) -> None:
        """Create the variable, and another one for quotients."""
        rows = sum(each.rows for each in self.divided)
        # tf_keras cannot cast a sharded variable automatically, so `call` casts the rows.
        with sharding.table():
            self.rows = self.add_weight(
                "rows", (rows, self.width), initializer=self.initializer, experimental_autocast=False
            )
            composed = [each for each in self.divided if each.parts]
            self.quotients = None
            if composed:
                self.quotients = self.add_weight(
                    "quotients",
                    (sum(each.parts for each in composed), self.width),
                    initializer=lambda shape, dtype=None, **_partition: tf.concat(
                        [tf.fill([each.parts, shape[1]], tf.cast(not each.is_sum, dtype)) for each in composed], axis=0
                    ),
                    experimental_autocast=False,
                )

    @property
    def composed(self) -> tuple[str, ...]:
        """The names of the ranges that have rows for quotients, in their order."""
        return tuple(name for name, each in zip(self.features, self.divided, strict=True) if each.parts)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, from which the layer can be made again; see tf_keras.layers.Layer."""
        return {
            **super().get_config(),
            "cardinalities": self.cardinalities,
            "width": self.width,
            "initializer": tf_keras.initializers.serialize(tf_keras.initializers.get(self.initializer)),
            "features": self.features,
            "ranges": self.ranges,
            "events": self.events,
            "quotients": [each.quotients for each in self.divided],
            "sums": [each.is_sum for each in self.divided],
        }

    def call(self, ids: Sequence[tf.Tensor], columns: Sequence[int] | None = None) -> tf.Tensor | list[tf.Tensor]:
        """Look up the rows of all columns, or of those with these numbers."""
        # A copy of a model has a single tensor instead of a list of one.
        ids = tf.nest.flatten(ids)
        columns = range(len(self.ranges)) if columns is None else columns
        ranges = [self.ranges[each] for each in columns]
        of_ranges = [0, *itertools.accumulate(each.rows for each in self.divided)][:-1]
        starts = tf.constant([of_ranges[each] for each in ranges], tf.int64)
        if all(column.shape.rank == 1 for column in ids) and self.quotients is None:
            return self._rows(self.rows, tf.stack(ids, axis=1) + starts)
        matrices = [column[:, tf.newaxis] if column.shape.rank == 1 else column for column in ids]
        divided = [self.divided[each] for each in ranges]
        remainders = [
            column % each.rows if each.parts else column for column, each in zip(matrices, divided, strict=True)
        ]
        rows_of_all = self._rows(
            self.rows,
            tf.concat([column + start for column, start in zip(remainders, tf.unstack(starts), strict=True)], axis=1),
        )
        parts = tf.split(rows_of_all, [column.shape[1] for column in matrices], axis=1)
        parts = self._composed(parts, matrices, ranges)
        means = [
            _mean(rows, column)
            for number, rows, column in zip(columns, parts, matrices, strict=True)
            if number not in self.events
        ]
        of_columns = [tf.stack(means, axis=1)] if means else []
        of_events = [rows for number, rows in zip(columns, parts, strict=True) if number in self.events]
        return [*of_columns, *of_events] if of_events else of_columns[0]

    def _composed(
        self, parts: list[tf.Tensor], matrices: Sequence[tf.Tensor], ranges: Sequence[int]
    ) -> list[tf.Tensor]:
        """Return the vectors of each input, [batch, n, width], from the rows of remainders and the ids, [batch, n]."""
        if self.quotients is None:
            return parts
        starts = [0, *itertools.accumulate(each.parts for each in self.divided)]
        numbers = [number for number, each in enumerate(ranges) if self.divided[each].parts]
        if not numbers:
            return parts
        indices = [matrices[each] // self.divided[ranges[each]].rows + starts[ranges[each]] for each in numbers]
        rows = tf.split(
            self._rows(self.quotients, tf.concat(indices, axis=1)), [each.shape[1] for each in indices], axis=1
        )
        vectors = [*parts]
        for number, each in zip(numbers, rows, strict=True):
            is_sum = self.divided[ranges[number]].is_sum
            vectors[number] = vectors[number] + each if is_sum else vectors[number] * each
        return vectors

    def _rows(self, variable: tf.Variable, indices: tf.Tensor) -> tf.Tensor:
        """Return the rows of a variable with these indices: int64 [batch, n] → [batch, n, width]."""
        if not isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
            return tf.cast(tf.nn.embedding_lookup(local_copy(variable), indices), self.compute_dtype)
        # A worker fetches each row of its batch once. Not tf.gather of the variable, which would concatenate the shards
        # of the parameter servers first.
        distinct, positions = tf.unique(tf.reshape(indices, [-1]), tf.int64)
        rows = tf.cast(tf.nn.embedding_lookup(variable, distinct), self.compute_dtype)
        return tf.gather(rows, tf.reshape(positions, tf.shape(indices)))


def _mean(rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Return the mean of an example's rows, [batch, n, width] → [batch, width], where the id, [batch, n], is not 0."""
    if ids.shape[1] == 1:
        return rows[:, 0]
    counted = tf.cast(tf.not_equal(ids, 0), rows.dtype)[:, :, tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(rows * counted, axis=1), tf.reduce_sum(counted, axis=1))


def input_layers(inputs: Inputs) -> Tensors:
    """Return an input layer for every feature: [batch, width], or [batch] if the width is 1."""
    tensors = {
        name: layers.Input(() if ids.values == 1 else (ids.values,), name=name, dtype="int64")
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        tensors[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return tensors


def features(config: ModelConfig, inputs: Inputs, tensors: Tensors) -> tf.Tensor:
    """Return the concatenated features: numbers, then embedded ids; shape [batch, width]."""
    parts = numbers(inputs, tensors)
    for width, group in by_width(inputs.ids, config).items():
        embedded = table(f"embedding_{width}", group, width, "uniform")([tensors[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    return concatenated(parts, "features")


def numbers(inputs: Inputs, tensors: Tensors, name: str = "numbers") -> list[tf.Tensor]:
    """Return the numbers as tensors [batch, width]; the first tensor, `name`, contains all features of width 1."""
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    parts = [tensors[name] for name, numbers in inputs.dense.items() if numbers.width != 1]
    if not single:
        return parts
    stack = layers.Lambda(lambda columns: tf.stack(tf.nest.flatten(columns), axis=1), name=name)
    return [stack([tensors[name] for name in single]), *parts]


def hidden(name: str, config: ModelConfig, below: tf.Tensor, last: int | None = None) -> tf.Tensor:
    """Return the hidden layers of the config.

    With `normalisation: layer`, outputs are normalised before the activation (Ba et al. 2016, Layer Normalization).

    Args:
      name: Prefix of the layers' names.
      config: Units, dropout, normalisation.
      below: The input, shape [batch, width].
      last: Units of an additional layer; None for no such layer.

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
    """Return the last layer, always in float32: shape [batch, outputs]."""
    return layers.Dense(outputs, name=name, dtype="float32")(below)


def weights_of_ids(inputs: Inputs, tensors: Tensors, outputs: int) -> tf.Tensor:
    """Return the sum of the weights of all ids, in float32: shape [batch, outputs]."""
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
    """Return a table for these features; the options are those of Table."""
    owners = {feature: each.shares if each.shares in ids else feature for feature, each in ids.items()}
    ranges = {owner: ids[owner] for owner in dict.fromkeys(owners.values())}
    numbers = {owner: number for number, owner in enumerate(ranges)}
    return Table(
        [each.cardinality for each in ranges.values()],
        width,
        initializer,
        tuple(ranges),
        [numbers[owner] for owner in owners.values()],
        quotients=[each.quotients or 0 for each in ranges.values()],
        sums=[each.composition == "sum" for each in ranges.values()],
        name=name,
        **options,
    )


def by_width(ids: dict[str, Ids], config: ModelConfig) -> dict[int, dict[str, Ids]]:
    """Width of an embedding → the columns with it."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        groups.setdefault(config.width(feature.cardinality, feature.width), {})[name] = feature
    return groups
