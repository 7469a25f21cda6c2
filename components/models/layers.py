"""The parts of models for tabular data: input layers, tables of IDs, hidden layers, logits."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import local_copy
from components.features import weighted_ids
from components.features.feature_spec import Ids
from components.models import sharding
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

Tensors = dict[str, tf.Tensor]
"""Feature name → symbolic tensor of its input layer."""


class Divided(NamedTuple):
    """The division of a range's IDs into rows.

    Attributes:
      ids: Number of IDs.
      quotients: Maximum number of quotients; 0 if every ID has a row.
      is_sum: Whether a vector is the sum of two rows; otherwise it is their product.
    """

    ids: int
    quotients: int
    is_sum: bool

    @property
    def rows(self) -> int:
        """The number of remainders, or of IDs if they are not divided."""
        return -(-self.ids // self.quotients) if self.quotients else self.ids

    @property
    def parts(self) -> int:
        """The actual number of quotients."""
        return -(-self.ids // self.rows) if self.quotients else 0


class Table(tf_keras.layers.Layer):  # type: ignore[misc]
    """The embeddings of several columns of IDs, in one variable with a range of rows per column.

    One lookup and one optimizer update for all columns, instead of one per column, make a step several times faster.

    A range with quotients has one row per remainder, and additional rows for the quotients. A vector combines a row of
    both (Shi et al. 2020, Compositional Embeddings Using Complementary Partitions for Memory-Efficient Recommendation
    Systems, quotient-remainder trick). The rows of quotients are initialized with 1 for a product and with 0 for a sum,
    so that IDs with the same remainder initially have the same vector.

    Input: a list of int64 tensors of shape [batch] or [batch, values], in the order of `ranges`.
    Output: a tensor of the layer's compute dtype and shape [batch, columns, width]. The embedding of several values is
    their mean, ignoring the ID 0, or the sum of their products with the weights. With `events`, the output is a list:
    the embeddings of the other columns as above, if there are other columns, then one tensor of shape
    [batch, values, width] per column of `events`. `call` can also look up a subset of the columns.

    Args:
      cardinalities: Numbers of IDs of the ranges.
      width: Width of an embedding.
      initializer: An initializer of tf_keras, or its name.
      features: Names of the ranges, with which a warm start matches the rows of earlier models.
      ranges: Index of the range of every input. By default every input has a separate range.
      events: Indices of the inputs whose values are not averaged.
      weighted: Indices of the inputs that are IDs with weights, see `weighted_ids`.
      quotients: Numbers of quotients of the ranges; 0 for a range with one row per ID. By default 0 for all.
      sums: Per range, whether a vector is the sum of two rows; otherwise it is their product.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        width: int,
        initializer: str | tf_keras.initializers.Initializer,
        features: Sequence[str] = (),
        ranges: Sequence[int] | None = None,
        events: Sequence[int] = (),
        weighted: Sequence[int] = (),
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
        self.events, self.weighted = tuple(events), tuple(weighted)
        self.cardinalities, self.width, self.initializer = tuple(cardinalities), width, initializer

    def build(self, _input_shape: Any) -> None:
        """Create the variable of rows, and the variable of quotients if a range has quotients."""
        rows = sum(division.rows for division in self.divided)
        # tf_keras cannot cast a sharded variable automatically, so `call` casts the rows.
        with sharding.table(self.name):
            self.rows = self.add_weight(
                "rows", (rows, self.width), initializer=self.initializer, experimental_autocast=False
            )
            composed = [division for division in self.divided if division.parts]
            self.quotients = None
            if composed:
                self.quotients = self.add_weight(
                    "quotients",
                    (sum(division.parts for division in composed), self.width),
                    initializer=lambda shape, dtype=None, **_partition: tf.concat(
                        [
                            tf.fill([division.parts, shape[1]], tf.cast(not division.is_sum, dtype))
                            for division in composed
                        ],
                        axis=0,
                    ),
                    experimental_autocast=False,
                )

    @property
    def composed(self) -> tuple[str, ...]:
        """The names of the ranges that have rows for quotients, in order."""
        return tuple(name for name, division in zip(self.features, self.divided, strict=True) if division.parts)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments from which the layer can be recreated; see tf_keras.layers.Layer."""
        return {
            **super().get_config(),
            "cardinalities": self.cardinalities,
            "width": self.width,
            "initializer": tf_keras.initializers.serialize(tf_keras.initializers.get(self.initializer)),
            "features": self.features,
            "ranges": self.ranges,
            "events": self.events,
            "weighted": self.weighted,
            "quotients": [division.quotients for division in self.divided],
            "sums": [division.is_sum for division in self.divided],
        }

    def call(self, ids: Sequence[tf.Tensor], columns: Sequence[int] | None = None) -> tf.Tensor | list[tf.Tensor]:
        """Look up the rows of all columns, or of the columns with these indices."""
        # A copy of a model passes a single tensor instead of a list with one tensor.
        ids = tf.nest.flatten(ids)
        columns = range(len(self.ranges)) if columns is None else columns
        ranges = [self.ranges[column] for column in columns]
        range_starts = [0, *itertools.accumulate(division.rows for division in self.divided)][:-1]
        starts = tf.constant([range_starts[index] for index in ranges], tf.int64)
        if all(column.shape.rank == 1 for column in ids) and self.quotients is None:
            return self._look_up(self.rows, tf.stack(ids, axis=1) + starts)
        matrices = [column[:, tf.newaxis] if column.shape.rank == 1 else column for column in ids]
        weights: list[tf.Tensor | None] = [None] * len(matrices)
        for index, number in enumerate(columns):
            if number in self.weighted:
                matrices[index], weights[index] = weighted_ids.unpack(matrices[index])
        divisions = [self.divided[index] for index in ranges]
        remainders = [
            matrix % division.rows if division.parts else matrix
            for matrix, division in zip(matrices, divisions, strict=True)
        ]
        all_rows = self._look_up(
            self.rows,
            tf.concat([column + start for column, start in zip(remainders, tf.unstack(starts), strict=True)], axis=1),
        )
        parts = tf.split(all_rows, [column.shape[1] for column in matrices], axis=1)
        parts = self._combine_quotients(parts, matrices, ranges)
        means = [
            _mean(rows, column) if column_weights is None else _sum(rows, column_weights)
            for number, rows, column, column_weights in zip(columns, parts, matrices, weights, strict=True)
            if number not in self.events
        ]
        column_means = [tf.stack(means, axis=1)] if means else []
        event_rows = [rows for number, rows in zip(columns, parts, strict=True) if number in self.events]
        return [*column_means, *event_rows] if event_rows else column_means[0]

    def _combine_quotients(
        self, parts: list[tf.Tensor], matrices: Sequence[tf.Tensor], ranges: Sequence[int]
    ) -> list[tf.Tensor]:
        """Combine the rows of remainders, [batch, n, width], with the rows of the quotients of the IDs, [batch, n]."""
        if self.quotients is None:
            return parts
        starts = [0, *itertools.accumulate(division.parts for division in self.divided)]
        inputs = [number for number, index in enumerate(ranges) if self.divided[index].parts]
        if not inputs:
            return parts
        indices = [matrices[number] // self.divided[ranges[number]].rows + starts[ranges[number]] for number in inputs]
        sizes = [index.shape[1] for index in indices]
        rows = tf.split(self._look_up(self.quotients, tf.concat(indices, axis=1)), sizes, axis=1)
        vectors = [*parts]
        for number, quotient_rows in zip(inputs, rows, strict=True):
            is_sum = self.divided[ranges[number]].is_sum
            vectors[number] = vectors[number] + quotient_rows if is_sum else vectors[number] * quotient_rows
        return vectors

    def _look_up(self, variable: tf.Variable, indices: tf.Tensor) -> tf.Tensor:
        """Look up rows of a variable; indices are int64 of shape [batch, n], the result is [batch, n, width]."""
        if not isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
            return tf.cast(tf.nn.embedding_lookup(local_copy(variable), indices), self.compute_dtype)
        # A worker fetches every distinct row of its batch once. Do not use tf.gather on the variable, because it would
        # concatenate the shards of the parameter servers first.
        distinct, positions = tf.unique(tf.reshape(indices, [-1]), tf.int64)
        rows = tf.cast(tf.nn.embedding_lookup(variable, distinct), self.compute_dtype)
        return tf.gather(rows, tf.reshape(positions, tf.shape(indices)))


def _mean(rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Average rows, [batch, n, width] → [batch, width], ignoring rows whose ID, [batch, n], is 0."""
    if ids.shape[1] == 1:
        return rows[:, 0]
    counted = tf.cast(tf.not_equal(ids, 0), rows.dtype)[:, :, tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(rows * counted, axis=1), tf.reduce_sum(counted, axis=1))


def _sum(rows: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Add rows, [batch, n, width] → [batch, width], multiplied by their weights, [batch, n]."""
    return tf.squeeze(tf.matmul(tf.cast(weights, rows.dtype)[:, tf.newaxis], rows), axis=1)


def input_layers(inputs: Inputs) -> Tensors:
    """Create an input layer per feature; shape [batch, width], or [batch] if the width is 1."""
    tensors = {
        name: layers.Input(() if ids.values == 1 else (ids.values,), name=name, dtype="int64")
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        tensors[name] = layers.Input(() if numbers.width == 1 else (numbers.width,), name=name, dtype="float32")
    return tensors


def features(config: ModelConfig, inputs: Inputs, tensors: Tensors) -> tf.Tensor:
    """Concatenate the features, numbers before embedded IDs; shape [batch, width]."""
    parts = numbers(inputs, tensors)
    for width, group in by_width(inputs.ids, config).items():
        embedded = table(f"embedding_{width}", group, width, "uniform")([tensors[name] for name in group])
        parts.append(layers.Flatten(name=f"embedded_{width}")(embedded))
    return concatenate(parts, "features")


def list_positions(config: ModelConfig, inputs: Inputs, columns: Collection[str]) -> list[int]:
    """Return the positions in the output of `features` of all features that are computed only from these columns."""
    single = [(name, 1) for name, numbers in inputs.dense.items() if numbers.width == 1]
    wide = [(name, numbers.width) for name, numbers in inputs.dense.items() if numbers.width != 1]
    embedded = [(name, width) for width, group in by_width(inputs.ids, config).items() for name in group]
    names = [name for name, width in (*single, *wide, *embedded) for _ in range(width)]
    return [position for position, name in enumerate(names) if set(inputs.list_columns(name)) <= set(columns)]


def numbers(inputs: Inputs, tensors: Tensors, name: str = "numbers") -> list[tf.Tensor]:
    """Return the numbers as tensors of shape [batch, width]. The first tensor, `name`, stacks features of width 1."""
    single = [name for name, numbers in inputs.dense.items() if numbers.width == 1]
    parts = [tensors[name] for name, numbers in inputs.dense.items() if numbers.width != 1]
    if not single:
        return parts
    stack = layers.Lambda(lambda columns: tf.stack(tf.nest.flatten(columns), axis=1), name=name)
    return [stack([tensors[name] for name in single]), *parts]


def hidden(name: str, config: ModelConfig, below: tf.Tensor, last: int | None = None) -> tf.Tensor:
    """Apply the hidden layers of the config.

    With `normalisation: layer`, outputs are normalised before the activation (Ba et al. 2016, Layer Normalization).

    Args:
      name: Prefix of the layers' names.
      config: Config with units, dropout and normalisation.
      below: Input of shape [batch, width].
      last: Units of an additional layer. If None, there is no additional layer.

    Returns:
      The output of the last layer, shape [batch, units].
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
    """Apply the last layer, which always computes in float32; shape [batch, outputs]."""
    return layers.Dense(outputs, name=name, dtype="float32")(below)


def weights_of_ids(inputs: Inputs, tensors: Tensors, outputs: int) -> tf.Tensor:
    """Return the sum of the weights of all IDs; float32, shape [batch, outputs]."""
    # Do not share weights: an ID gets separate linear weights as a history event and as a value of another column.
    unshared = {name: replace(ids, shares=None) for name, ids in inputs.ids.items()}
    weights = table("wide", unshared, outputs, "zeros", dtype="float32")([tensors[name] for name in unshared])
    return layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=1), name="wide_logits", dtype="float32")(weights)


def concatenate(parts: Sequence[tf.Tensor], name: str, axis: int = -1) -> tf.Tensor:
    """Concatenate tensors; return a single tensor unchanged."""
    return layers.Concatenate(axis, name=name)(parts) if len(parts) > 1 else parts[0]


def table(
    name: str, ids: dict[str, Ids], width: int, initializer: str | tf_keras.initializers.Initializer, **options: Any
) -> Table:
    """Create a table for features; see Table for the options."""
    owners = {feature: spec.shares if spec.shares in ids else feature for feature, spec in ids.items()}
    ranges = {owner: ids[owner] for owner in dict.fromkeys(owners.values())}
    numbers = {owner: number for number, owner in enumerate(ranges)}
    return Table(
        [spec.cardinality for spec in ranges.values()],
        width,
        initializer,
        tuple(ranges),
        [numbers[owner] for owner in owners.values()],
        weighted=[number for number, spec in enumerate(ids.values()) if spec.is_weighted],
        quotients=[spec.quotients or 0 for spec in ranges.values()],
        sums=[spec.composition == "sum" for spec in ranges.values()],
        name=name,
        **options,
    )


def by_width(ids: dict[str, Ids], config: ModelConfig) -> dict[int, dict[str, Ids]]:
    """Group columns by the width of their embeddings; return width → columns."""
    groups: dict[int, dict[str, Ids]] = {}
    for name, feature in ids.items():
        groups.setdefault(config.width(feature.cardinality, feature.width), {})[name] = feature
    return groups
