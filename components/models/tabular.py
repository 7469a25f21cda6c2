"""Models for tables: linear, mlp, wide_deep, dlrm and dcn_v2.

Under a mixed precision policy of tf_keras the networks compute in its 16 bits; their variables stay float32, and so do
the logits and the sums that make them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.models import parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import model

layers = tf_keras.layers

_WHOLE = 256
"""Width up to which a cross layer has a whole matrix; above it has two of a quarter of the rank."""


@model("linear")
def linear(_config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """A weight for each number and each id: logistic, softmax or linear regression."""
    given = parts.input_layers(inputs)
    terms = [parts.weights_of_ids(inputs, given, outputs)] if inputs.ids else []
    if inputs.dense:
        numbers = parts.concatenated(parts.numbers(inputs, given), "numbers_of_all")
        terms.append(parts.logits(outputs, numbers, name="dense_logits"))
    return tf_keras.Model(given, _sum(terms), name="linear")


@model("mlp")
def mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Numbers and embedded ids, concatenated, through the hidden layers."""
    given = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, given))
    return tf_keras.Model(given, parts.logits(outputs, deep), name="mlp")


@model("wide_deep")
def wide_deep(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """A weight per id beside the deep network (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems)."""
    given = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, given))
    terms = [parts.logits(outputs, deep, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, given, outputs))
    return tf_keras.Model(given, _sum(terms), name="wide_deep")


@model("dlrm")
def dlrm(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Dot products between the vectors of all ids and one vector of all numbers, through the hidden layers (Naumov et
    al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems).

    The vector of the numbers joins its products on their way up. Without numbers the vectors of the ids do, or a
    single id would come to nothing. Beside them each id has a weight of its own, as in a factorization machine (Rendle
    2010, Factorization Machines): what an id does by itself is found sooner that way than by products.
    """
    given = parts.input_layers(inputs)
    vectors, joining = [], []
    if inputs.ids:
        # Smaller than tf_keras' own: what products begin with is noise of the second order.
        small = tf_keras.initializers.RandomUniform(-0.01, 0.01)
        table = parts.table("embedding", inputs.ids, config.embedding, small)
        vectors.append(table([given[name] for name in inputs.ids]))
        joining = [layers.Flatten(name="embedded")(vectors[0])]
    if inputs.dense:
        numbers = parts.concatenated(parts.numbers(inputs, given), "numbers_of_all")
        bottom = parts.hidden("bottom", config, numbers, last=config.embedding)
        vectors.append(layers.Reshape((1, config.embedding), name="bottom_vector")(bottom))
        joining = [bottom]
    if len(inputs.ids) + bool(inputs.dense) > 1:
        products = layers.Lambda(_dot_products, name="products")
        joining.append(products(parts.concatenated(vectors, "vectors", axis=1)))
    top = parts.hidden("hidden", config, parts.concatenated(joining, "features"))
    terms = [parts.logits(outputs, top, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, given, outputs))
    return tf_keras.Model(given, _sum(terms), name="dlrm")


@model("dcn_v2")
def dcn_v2(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Layers that multiply all features with each other, beside the hidden layers (Wang et al. 2021, DCN V2: Improved
    Deep & Cross Network and Practical Lessons for Web-scale Learning to Rank Systems; its parallel form).
    """
    given = parts.input_layers(inputs)
    features = parts.features(config, inputs, given)
    crossed = features
    for depth in range(config.cross_layers):
        product = _projected(features.shape[-1], f"cross_{depth}", crossed)
        product = layers.Multiply(name=f"cross_{depth}_product")([features, product])
        crossed = layers.Add(name=f"cross_{depth}_sum")([crossed, product])
    deep = parts.hidden("hidden", config, features)
    return tf_keras.Model(given, parts.logits(outputs, parts.concatenated([crossed, deep], "both")), name="dcn_v2")


def _sum(terms: list[Any]) -> Any:
    return layers.Add(name="logits", dtype="float32")(terms) if len(terms) > 1 else terms[0]


def _projected(width: int, name: str, below: Any) -> Any:
    """Below times a matrix, which has a low rank where it would be large (section 3.3 of the paper)."""
    if width > _WHOLE:
        below = layers.Dense(width // 4, use_bias=False, name=f"{name}_low")(below)
    return layers.Dense(width, name=name)(below)


def _dot_products(vectors: Any) -> Any:
    """The product of each pair: [batch, n, width] → [batch, n * (n - 1) / 2]."""
    count = vectors.shape[1]
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    return tf.gather(products, [row * count + column for row in range(count) for column in range(row)], axis=1)
