"""The kind two_tower: a network of the query and one of the item, for the task retrieval.

The network's output has the vectors of both, and the number of the item: a loss that compares a query with the items of
other rows takes no more. The towers can be taken out of the network one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import tensorflow as tf
import tf_keras

from components.features import feature_names
from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

Tower = Literal["query", "item"]
_BASE = 1 << 16
"""Numbers of items are written as two digits to this base: float32 has no whole numbers above 2**24."""


class Vectors(NamedTuple):
    """The parts of the network's output.

    Attributes:
      query: float32 [batch, width].
      item: float32 [batch, width].
      ids: the item's number in its vocabulary, 0 if it is missing; int64 [batch].
    """

    query: tf.Tensor
    item: tf.Tensor
    ids: tf.Tensor


def outputs(config: ModelConfig) -> int:
    """Return the width of the network's output; a model without towers has vectors of width 0."""
    return 2 if config.is_item_to_item else 2 * config.hidden[-1] + 2


def vectors(output: tf.Tensor) -> Vectors:
    """Take the network's output, [batch, outputs], apart."""
    width = (output.shape[1] - 2) // 2
    query, item, digits = tf.split(output, [width, width, 2], axis=1)
    digits = tf.cast(digits, tf.int64)
    return Vectors(query, item, digits[:, 0] * _BASE + digits[:, 1])


def tower(network: tf_keras.Model, which: Tower, names: Collection[str]) -> tf_keras.Model:
    """Return a part of the network, which shares its weights: from the features of a tower to its vector.

    Args:
      network: of `two_tower`.
      which: the tower.
      names: its features, see `features_of`.
    """
    tensors = {tensor.name: tensor for tensor in network.inputs if tensor.name in names}
    return tf_keras.Model(tensors, network.get_layer(f"{which}_tower").output, name=which)


def features_of(config: ModelConfig, inputs: Inputs) -> dict[Tower, list[str]]:
    """Return the features of each tower, those of the item's id first."""
    id_feature = feature_names.feature(config.item[0], "vocab")
    items = [name for name in inputs.features if set(_columns(inputs, name)) <= set(config.item)]
    items.sort(key=lambda name: name not in (id_feature, config.item[0]))
    return {"query": [name for name in inputs.features if name not in items], "item": items}


def two_tower(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Embedded ids and numbers of query and item, each through hidden layers of its own (Yi et al. 2019,
    Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations).

    The embeddings of a history's events are averaged. A history that shares the item's vocabulary shares its
    embeddings, too.
    """
    tensors = parts.input_layers(inputs)
    names = features_of(config, inputs)
    tables = {
        width: (list(group), parts.table(f"embedding_{width}", group, width, "uniform"))
        for width, group in parts.by_width(inputs.ids, config).items()
    }
    found = []
    for which, own in names.items():
        below = []
        own_numbers = Inputs({name: each for name, each in inputs.dense.items() if name in own})
        below += parts.numbers(own_numbers, tensors, f"{which}_numbers")
        for width, (columns, table) in tables.items():
            chosen = [number for number, name in enumerate(columns) if name in own]
            if chosen:
                embedded = table([tensors[columns[number]] for number in chosen], columns=chosen)
                below.append(layers.Flatten(name=f"{which}_embedded_{width}")(embedded))
        hidden = parts.hidden(
            f"{which}_hidden",
            config.model_copy(update={"hidden": config.hidden[:-1]}),
            parts.concatenated(below, f"{which}_features"),
        )
        vector = parts.logits((outputs - 2) // 2, hidden, name=f"{which}_vector")
        scaled = _unit if config.similarity == "cosine" else tf.identity
        found.append(layers.Lambda(scaled, name=f"{which}_tower", dtype="float32")(vector))
    digits = item_digits(tensors[names["item"][0]])
    together = layers.Concatenate(name="vectors", dtype="float32")([*found, digits])
    return tf_keras.Model(tensors, together, name="two_tower")


def item_digits(ids: tf.Tensor) -> tf.Tensor:
    """Return the part of the network's output that `vectors` reads the item's number from; float32 [batch, 2]."""
    return layers.Lambda(_digits, name="item_number", dtype="float32")(ids)


def _columns(inputs: Inputs, name: str) -> Collection[str]:
    return inputs.columns.get(name, (name,))


def _unit(vector: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(vector, axis=1)


def _digits(ids: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.stack([ids // _BASE, ids % _BASE], axis=1), tf.float32)
