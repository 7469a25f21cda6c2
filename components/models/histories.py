"""Models of histories: din and bst, in which a candidate decides what its user's past events count.

A history is a `sequence` and the features along it, such as categories and time gaps; an event is the concatenation of
its embeddings. The candidate is the concatenation of the features that these share their embeddings with.
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
      name: the feature of its sequence.
      events: [batch, events, width]: those that share a candidate's embeddings first.
      mask: 1 where there is an event, [batch, events], float.
      candidate: [batch, width of the shared embeddings]; None if there is no candidate.
    """

    name: str
    events: tf.Tensor
    mask: tf.Tensor
    candidate: tf.Tensor | None


def din(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Weights each event by a small network of the event and the candidate, and adds up the weighted events (Zhou et
    al. 2018, Deep Interest Network for Click-Through Rate Prediction).

    As in the paper the weights are not normalized, so that their sum says how strong an interest is. The events of a
    history without a candidate are averaged.
    """
    tensors = parts.input_layers(inputs)
    (features,) = attended(config, inputs, tensors)
    deep = parts.hidden("hidden", config, features)
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="din")


def attended(
    config: ModelConfig, inputs: Inputs, tensors: parts.Tensors, networks: Sequence[str] = ("",)
) -> list[tf.Tensor]:
    """Return the concatenated features of networks with common embeddings, each with its own attention to histories.

    Args:
      config: widths of embeddings and attention.
      inputs: the features.
      tensors: of the features.
      networks: prefixes of the names of their layers.

    Returns:
      For each network, [batch, width].
    """
    features, histories = _embedded(config, inputs, tensors)
    return [
        parts.concatenated([*features, *(_attended(config, each, name) for each in histories)], f"{name}features")
        for name in networks
    ]


def bst(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Self-attention of the candidate and the events of a history (Chen et al. 2019, Behavior Sequence Transformer for
    E-commerce Recommendation in Alibaba).

    Positions are counted from the latest event. The output is the candidate's, or without one the latest event's.
    """
    tensors = parts.input_layers(inputs)
    features, histories = _embedded(config, inputs, tensors)
    pooled = [_self_attended(config, history) for history in histories]
    deep = parts.hidden("hidden", config, parts.concatenated([*features, *pooled], "features"))
    return tf_keras.Model(tensors, parts.logits(outputs, deep), name="bst")


def _embedded(config: ModelConfig, inputs: Inputs, tensors: parts.Tensors) -> tuple[list[tf.Tensor], list[_History]]:
    """Return the features that are in no history, each [batch, width], and the histories."""
    rows: dict[str, tf.Tensor] = {}
    features = parts.numbers(inputs, tensors)
    for width, group in parts.by_width(inputs.ids, config).items():
        of_events = [number for number, ids in enumerate(group.values()) if ids.is_history]
        others = [name for name, ids in group.items() if not ids.is_history]
        table = parts.table(f"embedding_{width}", group, width, "uniform", events=of_events)
        found = tf.nest.flatten(table([tensors[name] for name in group]))
        if others:
            embedded = found.pop(0)
            features.append(layers.Flatten(name=f"embedded_{width}")(embedded))
            pick = layers.Lambda(lambda each: tf.unstack(each, axis=1), name=f"columns_{width}")
            rows |= zip(others, pick(embedded), strict=True)
        rows |= zip((name for name, ids in group.items() if ids.is_history), found, strict=True)
    leads = [name for name, ids in inputs.ids.items() if ids.is_history and ids.along is None]
    return features, [_history(name, inputs, tensors, rows) for name in leads]


def _history(lead: str, inputs: Inputs, tensors: parts.Tensors, rows: dict[str, tf.Tensor]) -> _History:
    names = [lead, *(name for name, ids in inputs.ids.items() if ids.along == lead)]
    shared = [name for name in names if inputs.ids[name].shares]
    events = [rows[name] for name in (*shared, *(name for name in names if name not in shared))]
    candidate = [rows[str(inputs.ids[name].shares)] for name in shared]
    mask = layers.Lambda(lambda ids: tf.cast(tf.not_equal(ids, 0), tf.float32), name=f"{lead}_mask")
    return _History(
        lead,
        parts.concatenated(events, f"{lead}_events"),
        mask(tensors[lead]),
        parts.concatenated(candidate, f"{lead}_candidate") if candidate else None,
    )


def _attended(config: ModelConfig, history: _History, network: str = "") -> tf.Tensor:
    """Return the events of a history, weighted by what they have in common with the candidate: [batch, width]."""
    name, events, mask = f"{network}{history.name}", history.events, history.mask
    if history.candidate is None:
        return layers.Lambda(_mean, name=f"{name}_mean")([events, mask])
    below = layers.Lambda(_compared, name=f"{name}_compared")([events, history.candidate])
    for depth, units in enumerate(config.attention):
        below = layers.Dense(units, activation="relu", name=f"{name}_attention_{depth}")(below)
    weight = layers.Dense(1, activation="sigmoid", name=f"{name}_attention")(below)
    return layers.Lambda(_weighted_sum, name=f"{name}_attended")([events, weight, mask])


def _self_attended(config: ModelConfig, history: _History) -> tf.Tensor:
    """Return what the last block makes of the candidate: [batch, width]."""
    name, most = history.name, history.events.shape[1]
    tokens = layers.Lambda(_with_candidate, name=f"{name}_tokens")(
        [history.events] if history.candidate is None else [history.events, history.candidate]
    )
    width, has_candidate = tokens.shape[2], history.candidate is not None
    known = layers.Lambda(lambda each: _tokens_known(each, has_candidate), name=f"{name}_known")(history.mask)
    age = layers.Lambda(lambda each: _ages(each, has_candidate), name=f"{name}_ages")(history.mask)
    positions = layers.Embedding(most + 2, width, name=f"{name}_positions")(age)
    below = layers.Add(name=f"{name}_placed")([tokens, positions])
    for block in range(config.blocks):
        key = max(1, width // config.heads)
        attention = layers.MultiHeadAttention(config.heads, key, dropout=config.dropout, name=f"{name}_block_{block}")
        together = layers.Add(name=f"{name}_sum_{block}")([below, attention(below, below, attention_mask=known)])
        normed = layers.LayerNormalization(name=f"{name}_norm_{block}")(together)
        wide = layers.Dense(4 * width, activation="relu", name=f"{name}_wide_{block}")(normed)
        narrow = layers.Dense(width, name=f"{name}_narrow_{block}")(wide)
        below = layers.LayerNormalization(name=f"{name}_out_{block}")(
            layers.Add(name=f"{name}_both_{block}")([normed, narrow])
        )
    return layers.Lambda(lambda each: _newest(*each), name=f"{name}_attended")([below, age])


def _mean(given: list[tf.Tensor]) -> tf.Tensor:
    events, mask = given
    total = tf.reduce_sum(events * mask[:, :, tf.newaxis], axis=1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=1, keepdims=True))


def _compared(given: list[tf.Tensor]) -> tf.Tensor:
    """Events [batch, n, width] and candidate [batch, shared] → what the attention reads of each event."""
    events, candidate = given
    shared = events[:, :, : candidate.shape[1]]
    each = tf.broadcast_to(candidate[:, tf.newaxis], tf.shape(shared))
    return tf.concat([events, each, shared - each, shared * each], axis=-1)


def _weighted_sum(given: list[tf.Tensor]) -> tf.Tensor:
    events, weight, mask = given
    return tf.reduce_sum(events * weight * mask[:, :, tf.newaxis], axis=1)


def _with_candidate(given: list[tf.Tensor]) -> tf.Tensor:
    """Append the candidate to the events; what it does not share, such as a time gap, is 0."""
    events, *candidate = given
    if not candidate:
        return events
    padding = [[0, 0], [0, events.shape[2] - candidate[0].shape[1]]]
    return tf.concat([events, tf.pad(candidate[0], padding)[:, tf.newaxis]], axis=1)


def _ages(mask: tf.Tensor, has_candidate: bool) -> tf.Tensor:
    """How many events of a history are at least as late as each: int64 [batch, tokens]; 0 is the candidate's own."""
    count = tf.reduce_sum(tf.cast(mask, tf.int64), axis=1, keepdims=True)
    ages = tf.maximum(count - tf.range(mask.shape[1], dtype=tf.int64), 0)
    # Padding has the greatest number.
    ages = tf.where(mask > 0, ages, mask.shape[1] + 1)
    return tf.concat([ages, tf.zeros_like(count)], axis=1) if has_candidate else ages


def _tokens_known(mask: tf.Tensor, has_candidate: bool) -> tf.Tensor:
    """Which tokens are attended to, bool [batch, 1, tokens]."""
    known = mask > 0
    if has_candidate:
        known = tf.concat([known, tf.ones_like(known[:, :1])], axis=1)
    return known[:, tf.newaxis]


def _newest(tokens: tf.Tensor, ages: tf.Tensor) -> tf.Tensor:
    """Return the candidate's token, or the latest event's, 0 without one: [batch, tokens, width] → [batch, width]."""
    newest = tf.gather(tokens, tf.argmin(ages, axis=1), axis=1, batch_dims=1)
    return tf.where(tf.reduce_min(ages, axis=1, keepdims=True) <= tokens.shape[1], newest, tf.zeros_like(newest))
