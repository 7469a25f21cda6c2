"""Models for tables: linear, mlp, wide_deep, dlrm and dcn_v2.

Under a mixed precision policy of tf_keras the networks compute in 16 bits; variables, logits and the sums of logits are
float32.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

_MAX_FULL_RANK = 256
"""Width up to which a cross layer has a full matrix; above, it has two matrices with a quarter of the rank."""


def linear(_config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Return a weight for each number and each id: logistic, softmax or linear regression."""
    tensors = parts.input_layers(inputs)
    terms = [parts.weights_of_ids(inputs, tensors, outputs)] if inputs.ids else []
    if inputs.dense:
        numbers = parts.concatenated(parts.numbers(inputs, tensors), "numbers_of_all")
        terms.append(parts.logits(outputs, numbers, name="dense_logits"))
    return tf_keras.Model(tensors, _sum(terms), name="linear")


def mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Numbers and embedded ids, concatenated, through the hidden layers."""
    tensors = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, tensors))
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="mlp")


def wide_deep(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Add a linear model of ids and an mlp (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems)."""
    tensors = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, tensors))
    terms = [parts.logits(outputs, deep, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, tensors, outputs))
    return tf_keras.Model(tensors, _sum(terms), name="wide_deep")


def dlrm(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Dot products between the vectors of all ids and one vector of all numbers, through the hidden layers (Naumov et
    al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems).

    The vector of the numbers is concatenated with the products; without numbers the vectors of the ids are, because a
    single id has no product. In addition each id has a weight, as in a factorization machine (Rendle 2010,
    Factorization Machines): the effect of a single id is learned faster by a weight than by products.
    """
    tensors = parts.input_layers(inputs)
    vectors, concatenated = [], []
    if inputs.ids:
        # Smaller than the default of tf_keras, so that the initial products are negligible.
        small = tf_keras.initializers.RandomUniform(-0.01, 0.01)
        table = parts.table("embedding", inputs.ids, config.embedding, small)
        vectors.append(table([tensors[name] for name in inputs.ids]))
        concatenated = [layers.Flatten(name="embedded")(vectors[0])]
    if inputs.dense:
        numbers = parts.concatenated(parts.numbers(inputs, tensors), "numbers_of_all")
        bottom = parts.hidden("bottom", config, numbers, last=config.embedding)
        vectors.append(layers.Reshape((1, config.embedding), name="bottom_vector")(bottom))
        concatenated = [bottom]
    if len(inputs.ids) + bool(inputs.dense) > 1:
        products = layers.Lambda(_dot_products, name="products")
        concatenated.append(products(parts.concatenated(vectors, "vectors", axis=1)))
    top = parts.hidden("hidden", config, parts.concatenated(concatenated, "features"))
    terms = [parts.logits(outputs, top, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, tensors, outputs))
    return tf_keras.Model(tensors, _sum(terms), name="dlrm")


def dcn_v2(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Cross layers, which multiply features, parallel to the hidden layers (Wang et al. 2021, DCN V2: Improved
    Deep & Cross Network and Practical Lessons for Web-scale Learning to Rank Systems; its parallel form).
    """
    tensors = parts.input_layers(inputs)
    features = parts.features(config, inputs, tensors)
    crossed = features
    for depth in range(config.cross_layers):
        product = _projected(features.shape[-1], f"cross_{depth}", crossed)
        product = layers.Multiply(name=f"cross_{depth}_product")([features, product])
        crossed = layers.Add(name=f"cross_{depth}_sum")([crossed, product])
    deep = parts.hidden("hidden", config, features)
    return tf_keras.Model(tensors, parts.logits(outputs, parts.concatenated([crossed, deep], "both")), name="dcn_v2")


def _sum(terms: list[tf.Tensor]) -> tf.Tensor:
    return layers.Add(name="logits", dtype="float32")(terms) if len(terms) > 1 else terms[0]


def _projected(width: int, name: str, below: tf.Tensor) -> tf.Tensor:
    """`below` times a matrix: of full rank, or of low rank if it is large (Wang et al. 2021, section 3.3)."""
    if width > _MAX_FULL_RANK:
        below = layers.Dense(width // 4, use_bias=False, name=f"{name}_low")(below)
    return layers.Dense(width, name=name)(below)


def _dot_products(vectors: tf.Tensor) -> tf.Tensor:
    """Return the dot product of each pair of vectors: [batch, n, width] → [batch, n * (n - 1) / 2]."""
    count = vectors.shape[1]
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    return tf.gather(products, [row * count + column for row in range(count) for column in range(row)], axis=1)
