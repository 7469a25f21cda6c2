"""Models for tables: linear, mlp, wide_deep, dlrm and dcn_v2.

Under a mixed precision policy of tf_keras, the networks compute in 16 bits, but variables, logits and sums of logits
are float32.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

_MAX_FULL_RANK = 256
"""Maximum width of a cross layer with a full matrix. A wider layer has two matrices with a quarter of the rank."""


def linear(_config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a linear model with one weight per number and ID: logistic, softmax or linear regression."""
    tensors = parts.input_layers(inputs)
    terms = [parts.weights_of_ids(inputs, tensors, outputs)] if inputs.ids else []
    if inputs.dense:
        numbers = parts.concatenate(parts.numbers(inputs, tensors), "numbers_of_all")
        terms.append(parts.logits(outputs, numbers, name="dense_logits"))
    return tf_keras.Model(tensors, _sum(terms), name="linear")


def mlp(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build hidden layers over the concatenated numbers and embedded IDs."""
    tensors = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, tensors))
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="mlp")


def wide_deep(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build the sum of a linear model of IDs and an mlp (Cheng et al. 2016, Wide & Deep Learning for Recommender
    Systems).
    """
    tensors = parts.input_layers(inputs)
    deep = parts.hidden("hidden", config, parts.features(config, inputs, tensors))
    terms = [parts.logits(outputs, deep, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, tensors, outputs))
    return tf_keras.Model(tensors, _sum(terms), name="wide_deep")


def dlrm(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build hidden layers over the dot products between the vectors of all IDs and one vector of all numbers (Naumov et
    al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems).

    The products are concatenated with the vector of the numbers. Without numbers, they are concatenated with the
    vectors of the IDs, because a single ID does not have a product. In addition, every ID has a weight, as in a
    factorization machine (Rendle 2010, Factorization Machines): a weight learns the effect of a single ID faster than
    products do.
    """
    tensors = parts.input_layers(inputs)
    vectors, top_inputs = [], []
    if inputs.ids:
        # Smaller than the default of tf_keras, so that the initial products are negligible.
        small = tf_keras.initializers.RandomUniform(-0.01, 0.01)
        table = parts.table("embedding", inputs.ids, config.embedding, small)
        vectors.append(table([tensors[name] for name in inputs.ids]))
        top_inputs = [layers.Flatten(name="embedded")(vectors[0])]
    if inputs.dense:
        numbers = parts.concatenate(parts.numbers(inputs, tensors), "numbers_of_all")
        bottom = parts.hidden("bottom", config, numbers, last=config.embedding)
        vectors.append(layers.Reshape((1, config.embedding), name="bottom_vector")(bottom))
        top_inputs = [bottom]
    if len(inputs.ids) + bool(inputs.dense) > 1:
        products = layers.Lambda(_dot_products, name="products")
        top_inputs.append(products(parts.concatenate(vectors, "vectors", axis=1)))
    top = parts.hidden("hidden", config, parts.concatenate(top_inputs, "features"))
    terms = [parts.logits(outputs, top, name="deep_logits")]
    if inputs.ids:
        terms.append(parts.weights_of_ids(inputs, tensors, outputs))
    return tf_keras.Model(tensors, _sum(terms), name="dlrm")


def dcn_v2(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build cross layers, which multiply features, parallel to hidden layers (Wang et al. 2021, DCN V2: Improved Deep &
    Cross Network and Practical Lessons for Web-scale Learning to Rank Systems; the parallel form).
    """
    tensors = parts.input_layers(inputs)
    features = parts.features(config, inputs, tensors)
    crossed = features
    for depth in range(config.cross_layers):
        product = _project(features.shape[-1], f"cross_{depth}", crossed)
        product = layers.Multiply(name=f"cross_{depth}_product")([features, product])
        crossed = layers.Add(name=f"cross_{depth}_sum")([crossed, product])
    deep = parts.hidden("hidden", config, features)
    return tf_keras.Model(tensors, parts.logits(outputs, parts.concatenate([crossed, deep], "both")), name="dcn_v2")


def _sum(terms: list[tf.Tensor]) -> tf.Tensor:
    return layers.Add(name="logits", dtype="float32")(terms) if len(terms) > 1 else terms[0]


def _project(width: int, name: str, below: tf.Tensor) -> tf.Tensor:
    """Multiply by a matrix of full rank, or of low rank if it is large (Wang et al. 2021, section 3.3)."""
    if width > _MAX_FULL_RANK:
        below = layers.Dense(width // 4, use_bias=False, name=f"{name}_low")(below)
    return layers.Dense(width, name=name)(below)


def _dot_products(vectors: tf.Tensor) -> tf.Tensor:
    """Compute the dot products of all pairs of vectors: [batch, n, width] → [batch, n * (n - 1) / 2]."""
    count = vectors.shape[1]
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    return tf.gather(products, [row * count + column for row in range(count) for column in range(row)], axis=1)
