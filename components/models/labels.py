"""Models for several labels: esmm, mmoe and ple. Other kinds support several labels as more logits of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    expert_config, label_config = _divide_hidden(config)
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


def ple(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build levels of experts, shared or for a single label (Tang et al. 2020, Progressive Layered
    Extraction: A Novel Multi-Task Learning Model for Personalized Recommendations).

    In every level, each label has `label_experts` experts, and all labels share `experts` experts. The output of a
    label is the mean of its experts and of the shared experts, weighted by a gate; the shared output is the weighted
    mean of all experts. The experts and the gate of the next level read the output of the same label, or the
    shared output. Every label has a separate last hidden layer on its output of the last level.
    """
    tensors = parts.input_layers(inputs)
    expert_config, label_config = _divide_hidden(config)
    groups = [*(f"label_{number}" for number in range(outputs)), _SHARED]
    counts = {group: config.experts if group == _SHARED else config.label_experts for group in groups}
    experts_of = {group: [f"{group}_expert_{number}" for number in range(count)] for group, count in counts.items()}
    names = [name for group in groups for name in experts_of[group]]
    *features, gate_features = attend(config, inputs, tensors, [f"level_0_{name}_" for name in (*names, "gates")])
    below, gates = dict(zip(names, features, strict=True)), dict.fromkeys(groups, gate_features)
    for level in range(config.levels):
        experts = {name: parts.hidden(f"level_{level}_{name}", expert_config, below[name]) for name in names}
        # No expert reads a shared output of the last level.
        mixing = groups if level < config.levels - 1 else groups[:-1]
        gates = _mix_experts(f"level_{level}", mixing, experts_of, experts, gates)
        below = {name: gates[group] for group in mixing for name in experts_of[group]}
    logits = [
        parts.logits(1, parts.hidden(f"own_{number}", label_config, gates[group]), name=f"logits_{number}")
        for number, group in enumerate(groups[:-1])
    ]
    return tf_keras.Model(tensors, layers.Concatenate(name="logits", dtype="float32")(logits), name="ple")


_SHARED = "shared"


def _mix_experts(
    level: str,
    groups: Sequence[str],
    experts_of: Mapping[str, Sequence[str]],
    experts: Mapping[str, tf.Tensor],
    below: Mapping[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Return the weighted means of the experts that a gate reads, [batch, width], for groups of experts.

    Args:
      level: Prefix of the names of the layers.
      groups: The groups that have a gate.
      experts_of: Group → names of its experts.
      experts: Name → output of the expert, [batch, width].
      below: Group → input of its gate, [batch, width].
    """
    means = {}
    for group in groups:
        names = [*experts] if group == _SHARED else [*experts_of[group], *experts_of[_SHARED]]
        stacked = layers.Lambda(_stack, name=f"{level}_{group}_experts")([experts[name] for name in names])
        gate = layers.Dense(len(names), activation="softmax", name=f"{level}_{group}_gate")(below[group])
        means[group] = layers.Dot(axes=1, name=f"{level}_{group}_mixed")([gate, stacked])
    return means


def _stack(outputs: list[tf.Tensor]) -> tf.Tensor:
    """Stack the outputs of experts, [batch, width], to [batch, experts, width]."""
    # A copy of a model passes a single tensor instead of a list with one tensor.
    return tf.stack(tf.nest.flatten(outputs), axis=1)


def _divide_hidden(config: ModelConfig) -> tuple[ModelConfig, ModelConfig]:
    """Return the config of an expert, with all hidden layers except the last, and of a label, with the last layer.

    A single hidden layer belongs to the experts.
    """
    *shared, last = config.hidden
    return (
        config.model_copy(update={"hidden": tuple(shared) or (last,)}),
        config.model_copy(update={"hidden": (last,) if shared else ()}),
    )


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
