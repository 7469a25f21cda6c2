"""Models for several labels: esmm and mmoe. Other kinds support several labels as additional logits of one network."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.histories import attend
from components.models.inputs import Inputs

layers = tf_keras.layers


def esmm(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build one network per label on shared embeddings (Ma et al. 2018, Entire Space Multi-Task Model: An Effective
    Approach for Estimating Post-Click Conversion Rate; the paper has two labels).

    The first network predicts the probability of the first label. The others predict the probability of a label in rows
    with the previous label. The logits of the model belong to the products: the probability of a label and all previous
    labels.
    """
    tensors = parts.input_layers(inputs)
    names = [f"own_{number}" for number in range(outputs)]
    features = attend(config, inputs, tensors, [f"{name}_" for name in names])
    label_logits = [
        parts.logits(1, parts.hidden(name, config, below), name=f"{name}_logits")
        for name, below in zip(names, features, strict=True)
    ]
    chain = layers.Lambda(lambda logits: _chain(tf.nest.flatten(logits)), name="logits", dtype="float32")
    return tf_keras.Model(tensors, chain(label_logits), name="esmm")


def mmoe(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network of experts that all labels share. Every label has a separate weighted mean of the experts and a
    separate last hidden layer (Ma et al. 2018, Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts).
    """
    tensors = parts.input_layers(inputs)
    *shared, last = config.hidden
    expert_config = config.model_copy(update={"hidden": tuple(shared) or (last,)})
    label_config = config.model_copy(update={"hidden": (last,) if shared else ()})
    names = [f"expert_{number}" for number in range(config.experts)]
    *features, below = attend(config, inputs, tensors, [f"{name}_" for name in (*names, "gates")])
    experts = [
        parts.hidden(name, expert_config, expert_features)
        for name, expert_features in zip(names, features, strict=True)
    ]
    stacked = layers.Lambda(lambda outputs: tf.stack(outputs, axis=1), name="experts")(experts)
    logits = []
    for number in range(outputs):
        gate = layers.Dense(config.experts, activation="softmax", name=f"gate_{number}")(below)
        mixed = layers.Dot(axes=1, name=f"mixed_{number}")([gate, stacked])
        logits.append(parts.logits(1, parts.hidden(f"own_{number}", label_config, mixed), name=f"logits_{number}"))
    return tf_keras.Model(tensors, layers.Concatenate(name="logits", dtype="float32")(logits), name="mmoe")


def _chain(logits: list[tf.Tensor]) -> tf.Tensor:
    """Compute the logits of the products of the first 1, 2, ... probabilities; n times [batch, 1] → [batch, n]."""
    product, *following = logits
    products = [product]
    for logit in following:
        # 1 / odds of a product of probabilities is (1 + exp(-first logit)) * (1 + exp(-second logit)) - 1.
        inverse = tf.concat([-product, -logit, -product - logit], axis=1)
        product = -tf.reduce_logsumexp(inverse, axis=1, keepdims=True)
        products.append(product)
    return tf.concat(products, axis=1)
