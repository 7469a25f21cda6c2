"""The kind two_tower: a network for the query and a network for the item, for the task retrieval.

The network's output contains both vectors and the number of the item, which is all that a loss needs to compare a query
with the items of other rows. The towers can be extracted from the network separately.
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
"""The number of an item is written as two digits to this base, because float32 is not exact above 2**24."""


class Vectors(NamedTuple):
    """The parts of the network's output.

    Attributes:
      query: Vectors of the queries; float32, shape [batch, width].
      item: Vectors of the items; float32, shape [batch, width].
      ids: Numbers of the items in their vocabulary, 0 if missing; int64, shape [batch].
    """

    query: tf.Tensor
    item: tf.Tensor
    ids: tf.Tensor


def outputs(config: ModelConfig) -> int:
    """Return the width of the network's output. The vectors of a model without towers have the width 0."""
    return 2 if config.is_item_to_item else 2 * config.hidden[-1] + 2


def vectors(output: tf.Tensor) -> Vectors:
    """Split the network's output of shape [batch, outputs] into its parts."""
    width = (output.shape[1] - 2) // 2
    query, item, digits = tf.split(output, [width, width, 2], axis=1)
    digits = tf.cast(digits, tf.int64)
    return Vectors(query, item, digits[:, 0] * _BASE + digits[:, 1])


def tower(network: tf_keras.Model, which: Tower, names: Collection[str]) -> tf_keras.Model:
    """Extract a tower, from its features to its vector. It shares the weights of the network.

    Args:
      network: Network of `two_tower`.
      which: Tower to extract.
      names: Names of the tower's features, see `features_of`.
    """
    tensors = {tensor.name: tensor for tensor in network.inputs if tensor.name in names}
    return tf_keras.Model(tensors, network.get_layer(f"{which}_tower").output, name=which)


def features_of(config: ModelConfig, inputs: Inputs) -> dict[Tower, list[str]]:
    """Return tower → names of its features. The feature of the item's ID comes first."""
    id_feature = feature_names.feature(config.item[0], "vocab")
    items = [name for name in inputs.features if set(inputs.list_columns(name)) <= set(config.item)]
    items.sort(key=lambda name: name not in (id_feature, config.item[0]))
    return {"query": [name for name in inputs.features if name not in items], "item": items}


def two_tower(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build separate hidden layers over the embedded IDs and numbers of query and item (Yi et al. 2019,
    Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations).

    The embeddings of a history's events are averaged. A history that shares the item's vocabulary also shares its
    embeddings.
    """
    tensors = parts.input_layers(inputs)
    names = features_of(config, inputs)
    tables = {
        width: (list(group), parts.table(f"embedding_{width}", group, width, "uniform"))
        for width, group in parts.by_width(inputs.ids, config).items()
    }
    vectors = []
    for which, tower_names in names.items():
        below = []
        tower_numbers = Inputs({name: spec for name, spec in inputs.dense.items() if name in tower_names})
        below += parts.numbers(tower_numbers, tensors, f"{which}_numbers")
        for width, (columns, table) in tables.items():
            chosen = [number for number, name in enumerate(columns) if name in tower_names]
            if chosen:
                embedded = table([tensors[columns[number]] for number in chosen], columns=chosen)
                below.append(layers.Flatten(name=f"{which}_embedded_{width}")(embedded))
        hidden = parts.hidden(
            f"{which}_hidden",
            config.model_copy(update={"hidden": config.hidden[:-1]}),
            parts.concatenate(below, f"{which}_features"),
        )
        vector = parts.logits((outputs - 2) // 2, hidden, name=f"{which}_vector")
        scale = _normalize if config.similarity == "cosine" else tf.identity
        vectors.append(layers.Lambda(scale, name=f"{which}_tower", dtype="float32")(vector))
    digits = item_digits(tensors[names["item"][0]])
    output = layers.Concatenate(name="vectors", dtype="float32")([*vectors, digits])
    return tf_keras.Model(tensors, output, name="two_tower")


def item_digits(ids: tf.Tensor) -> tf.Tensor:
    """Encode the item's number as two digits, which `vectors` decodes; float32, shape [batch, 2]."""
    return layers.Lambda(_digits, name="item_number", dtype="float32")(ids)


def _normalize(vector: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(vector, axis=1)


def _digits(ids: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.stack([ids // _BASE, ids % _BASE], axis=1), tf.float32)
