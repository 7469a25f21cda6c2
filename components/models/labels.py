"""Models of several labels: esmm and mmoe. Other kinds have several labels too, as further logits of one network."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.histories import attended
from components.models.inputs import Inputs

layers = tf_keras.layers


def esmm(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network for each label on shared embeddings: the probability of the first label, and of others in
    rows with the one before it (Ma et al. 2018, Entire Space Multi-Task Model: An Effective Approach for Estimating
    Post-Click Conversion Rate; there are two in the paper).

    Logits are those of the products, the probability of a label and all before it.
    """
    tensors = parts.input_layers(inputs)
    names = [f"own_{number}" for number in range(outputs)]
    features = attended(config, inputs, tensors, [f"{name}_" for name in names])
    of_each = [
        parts.logits(1, parts.hidden(name, config, below), name=f"{name}_logits")
        for name, below in zip(names, features, strict=True)
    ]
    chain = layers.Lambda(lambda each: _chained(tf.nest.flatten(each)), name="logits", dtype="float32")
    return tf_keras.Model(tensors, chain(of_each), name="esmm")


def mmoe(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Experts that all labels share, of which each label has a weighted mean of its own and a last hidden layer (Ma et
    al. 2018, Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts).
    """
    tensors = parts.input_layers(inputs)
    *shared, own = config.hidden
    of_experts = config.model_copy(update={"hidden": tuple(shared) or (own,)})
    of_labels = config.model_copy(update={"hidden": (own,) if shared else ()})
    names = [f"expert_{number}" for number in range(config.experts)]
    *features, below = attended(config, inputs, tensors, [f"{name}_" for name in (*names, "gates")])
    experts = [parts.hidden(name, of_experts, each) for name, each in zip(names, features, strict=True)]
    stacked = layers.Lambda(lambda each: tf.stack(each, axis=1), name="experts")(experts)
    logits = []
    for number in range(outputs):
        gate = layers.Dense(config.experts, activation="softmax", name=f"gate_{number}")(below)
        mixed = layers.Dot(axes=1, name=f"mixed_{number}")([gate, stacked])
        logits.append(parts.logits(1, parts.hidden(f"own_{number}", of_labels, mixed), name=f"logits_{number}"))
    return tf_keras.Model(tensors, layers.Concatenate(name="logits", dtype="float32")(logits), name="mmoe")


def _chained(given: list[tf.Tensor]) -> tf.Tensor:
    """Logits [batch, 1] → those of the products of the first one's probability, of the first two, ...: [batch, n]."""
    product, *others = given
    products = [product]
    for each in others:
        # 1 / odds of a product is (1 + exp(-one)) * (1 + exp(-other)) - 1.
        inverse = tf.concat([-product, -each, -product - each], axis=1)
        product = -tf.reduce_logsumexp(inverse, axis=1, keepdims=True)
        products.append(product)
    return tf.concat(products, axis=1)
