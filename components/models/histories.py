"""Models of histories: din and bst, in which the weights of a user's past events depend on a candidate.

A history is a `sequence` and the features along it, such as categories and time gaps. An event is the concatenation of
its embeddings. The candidate is the concatenation of the features whose embeddings the history shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers


@dataclass(frozen=True)
class _History:
    """A history, as embedded tensors.

    Attributes:
      name: Name of the feature of the sequence.
      events: Embedded events, shape [batch, events, width], with the embeddings that the candidate shares first.
      mask: 1 for an event and 0 for padding; float, shape [batch, events].
      candidate: Embedded candidate, shape [batch, width of the shared embeddings]. None if there is no candidate.
    """

    name: str
    events: tf.Tensor
    mask: tf.Tensor
    candidate: tf.Tensor | None


def din(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network that weights events by a small network of the event and the candidate, and adds them (Zhou et al.
    2018, Deep Interest Network for Click-Through Rate Prediction).

    As in the paper, the weights are not normalized, so that their sum expresses the strength of an interest. The events
    of a history without a candidate are averaged.
    """
    tensors = parts.input_layers(inputs)
    (features,) = attend(config, inputs, tensors)
    deep = parts.hidden("hidden", config, features)
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="din")


def attend(
    config: ModelConfig, inputs: Inputs, tensors: parts.Tensors, networks: Sequence[str] = ("",)
) -> list[tf.Tensor]:
    """Concatenate the features for networks that share embeddings but have separate attention to histories.

    Args:
      config: Config with the widths of embeddings and attention.
      inputs: Transformed features.
      tensors: Tensors of the features.
      networks: Prefixes of the names of the networks' layers.

    Returns:
      One tensor of shape [batch, width] per network.
    """
    features, histories = _embed(config, inputs, tensors)
    return [
        parts.concatenate([*features, *(_attend(config, history, name) for history in histories)], f"{name}features")
        for name in networks
    ]


def bst(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network with self-attention over the candidate and the events of a history (Chen et al. 2019, Behavior
    Sequence Transformer for E-commerce Recommendation in Alibaba).

    Positions count from the latest event. The output is taken at the candidate, or at the latest event if there is no
    candidate.
    """
    tensors = parts.input_layers(inputs)
    features, histories = _embed(config, inputs, tensors)
    pooled = [_self_attend(config, history) for history in histories]
    deep = parts.hidden("hidden", config, parts.concatenate([*features, *pooled], "features"))
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="bst")


def _embed(config: ModelConfig, inputs: Inputs, tensors: parts.Tensors) -> tuple[list[tf.Tensor], list[_History]]:
    """Embed the IDs; return the features outside of histories, of shape [batch, width], and the histories."""
    rows: dict[str, tf.Tensor] = {}
    features = parts.numbers(inputs, tensors)
    for width, group in parts.by_width(inputs.ids, config).items():
        events = [number for number, ids in enumerate(group.values()) if ids.is_history]
        columns = [name for name, ids in group.items() if not ids.is_history]
        table = parts.table(f"embedding_{width}", group, width, "uniform", events=events)
        embeddings = tf.nest.flatten(table([tensors[name] for name in group]))
        if columns:
            embedded = embeddings.pop(0)
            features.append(layers.Flatten(name=f"embedded_{width}")(embedded))
            pick = layers.Lambda(lambda matrix: tf.unstack(matrix, axis=1), name=f"columns_{width}")
            rows |= zip(columns, pick(embedded), strict=True)
        rows |= zip((name for name, ids in group.items() if ids.is_history), embeddings, strict=True)
    leads = [name for name, ids in inputs.ids.items() if ids.is_history and ids.along is None]
    return features, [_create_history(name, inputs, tensors, rows) for name in leads]


def _create_history(lead: str, inputs: Inputs, tensors: parts.Tensors, rows: dict[str, tf.Tensor]) -> _History:
    names = [lead, *(name for name, ids in inputs.ids.items() if ids.along == lead)]
    shared = [name for name in names if inputs.ids[name].shares]
    events = [rows[name] for name in (*shared, *(name for name in names if name not in shared))]
    candidate = [rows[str(inputs.ids[name].shares)] for name in shared]
    mask = layers.Lambda(lambda ids: tf.cast(tf.not_equal(ids, 0), tf.float32), name=f"{lead}_mask")
    return _History(
        lead,
        parts.concatenate(events, f"{lead}_events"),
        mask(tensors[lead]),
        parts.concatenate(candidate, f"{lead}_candidate") if candidate else None,
    )


def _attend(config: ModelConfig, history: _History, network: str = "") -> tf.Tensor:
    """Return the sum of a history's events, weighted by their relation to the candidate; shape [batch, width]."""
    name, events, mask = f"{network}{history.name}", history.events, history.mask
    if history.candidate is None:
        return layers.Lambda(_mean, name=f"{name}_mean")([events, mask])
    below = layers.Lambda(_compare, name=f"{name}_compared")([events, history.candidate])
    for depth, units in enumerate(config.attention):
        below = layers.Dense(units, activation="relu", name=f"{name}_attention_{depth}")(below)
    weight = layers.Dense(1, activation="sigmoid", name=f"{name}_attention")(below)
    return layers.Lambda(_weighted_sum, name=f"{name}_attended")([events, weight, mask])


def _self_attend(config: ModelConfig, history: _History) -> tf.Tensor:
    """Return the output of the last block for the candidate or the latest event; shape [batch, width]."""
    name, most = history.name, history.events.shape[1]
    tokens = layers.Lambda(_append_candidate, name=f"{name}_tokens")(
        [history.events] if history.candidate is None else [history.events, history.candidate]
    )
    width, has_candidate = tokens.shape[2], history.candidate is not None
    known = layers.Lambda(lambda events: _mask_tokens(events, has_candidate), name=f"{name}_known")(history.mask)
    age = layers.Lambda(lambda events: _count_ages(events, has_candidate), name=f"{name}_ages")(history.mask)
    positions = layers.Embedding(most + 2, width, name=f"{name}_positions")(age)
    below = layers.Add(name=f"{name}_placed")([tokens, positions])
    for block in range(config.blocks):
        key = max(1, width // config.heads)
        attention = layers.MultiHeadAttention(config.heads, key, dropout=config.dropout, name=f"{name}_block_{block}")
        residual = layers.Add(name=f"{name}_sum_{block}")([below, attention(below, below, attention_mask=known)])
        normed = layers.LayerNormalization(name=f"{name}_norm_{block}")(residual)
        wide = layers.Dense(4 * width, activation="relu", name=f"{name}_wide_{block}")(normed)
        narrow = layers.Dense(width, name=f"{name}_narrow_{block}")(wide)
        below = layers.LayerNormalization(name=f"{name}_out_{block}")(
            layers.Add(name=f"{name}_both_{block}")([normed, narrow])
        )
    return layers.Lambda(lambda tensors: _select_newest(*tensors), name=f"{name}_attended")([below, age])


def _mean(tensors: list[tf.Tensor]) -> tf.Tensor:
    events, mask = tensors
    total = tf.reduce_sum(events * mask[:, :, tf.newaxis], axis=1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=1, keepdims=True))


def _compare(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Compute the input of the attention from events, [batch, n, width], and the candidate, [batch, shared]."""
    events, candidate = tensors
    shared = events[:, :, : candidate.shape[1]]
    repeated = tf.broadcast_to(candidate[:, tf.newaxis], tf.shape(shared))
    return tf.concat([events, repeated, shared - repeated, shared * repeated], axis=-1)


def _weighted_sum(tensors: list[tf.Tensor]) -> tf.Tensor:
    events, weight, mask = tensors
    return tf.reduce_sum(events * weight * mask[:, :, tf.newaxis], axis=1)


def _append_candidate(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Append the candidate to the events. Embeddings that it does not share, such as a time gap, are 0."""
    events, *candidate = tensors
    if not candidate:
        return events
    padding = [[0, 0], [0, events.shape[2] - candidate[0].shape[1]]]
    return tf.concat([events, tf.pad(candidate[0], padding)[:, tf.newaxis]], axis=1)


def _count_ages(mask: tf.Tensor, has_candidate: bool) -> tf.Tensor:
    """Count the events of a history from the latest event, 1; the candidate is 0. int64 of shape [batch, tokens]."""
    count = tf.reduce_sum(tf.cast(mask, tf.int64), axis=1, keepdims=True)
    ages = tf.maximum(count - tf.range(mask.shape[1], dtype=tf.int64), 0)
    # Padding gets the greatest number.
    ages = tf.where(mask > 0, ages, mask.shape[1] + 1)
    return tf.concat([ages, tf.zeros_like(count)], axis=1) if has_candidate else ages


def _mask_tokens(mask: tf.Tensor, has_candidate: bool) -> tf.Tensor:
    """Return the mask of the tokens that are attended to; bool, shape [batch, 1, tokens]."""
    known = mask > 0
    if has_candidate:
        known = tf.concat([known, tf.ones_like(known[:, :1])], axis=1)
    return known[:, tf.newaxis]


def _select_newest(tokens: tf.Tensor, ages: tf.Tensor) -> tf.Tensor:
    """Return the token of the candidate or of the latest event, or 0 without events; shape [batch, width]."""
    newest = tf.gather(tokens, tf.argmin(ages, axis=1), axis=1, batch_dims=1)
    return tf.where(tf.reduce_min(ages, axis=1, keepdims=True) <= tokens.shape[1], newest, tf.zeros_like(newest))
