"""Remove units of dense layers and filters of convolutions, so that a network becomes smaller and faster.

Source: H. Li et al., Pruning Filters for Efficient ConvNets, 2017.

A channel is a number at the last axis of a tensor. It gets an ID where a dense layer or a convolution computes it, and
the IDs are followed through the network. A layer that computes every channel separately passes them on. An addition
joins the channels of its inputs: they can only be removed together. Channels are kept if the prediction consists of
them, or if a layer reads them that is not known here, such as a layer normalization or a user's layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tf_keras
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from components.compat.tensorflow import is_functional, list_calls
from components.edge.fine_tuning import NotMadeError, check_layers

Ids: TypeAlias = "npt.NDArray[np.int64]"
"""IDs of the channels of a tensor."""

layers = tf_keras.layers

_PRODUCERS = (layers.Dense, layers.Conv2D)
_SEPARATE = (
    *(layers.Activation, layers.ELU, layers.LeakyReLU, layers.ReLU, layers.Dropout, layers.SpatialDropout2D),
    *(layers.AveragePooling2D, layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D, layers.MaxPooling2D),
    *(layers.UpSampling2D, layers.ZeroPadding2D),
)
"""Layers without weights that compute every channel separately."""
_MERGES = (layers.Add, layers.Average, layers.Maximum, layers.Minimum, layers.Multiply, layers.Subtract)
_ACTIVATIONS = (
    *("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu", "relu6", "selu", "sigmoid"),
    *("silu", "softplus", "softsign", "swish", "tanh"),
)
"""Activations that compute every number separately, unlike softmax."""
_FIXED = 0
"""ID of all channels that are never removed, such as the features."""


@dataclass(frozen=True)
class CutNetwork:
    """A network without some of its channels.

    Attributes:
      network: The network, with the same inputs and outputs.
      removed: Name of a layer → its number of channels before and after.
      whole: Name of a dense or convolutional layer that was not cut → reason.
    """

    network: tf_keras.Model
    removed: dict[str, tuple[int, int]]
    whole: dict[str, str]


def remove_channels(network: tf_keras.Model, share: float) -> CutNetwork:
    """Remove the channels with the smallest weights from every layer, as far as the layers that read it allow.

    The size of a channel is the L1 norm of the weights that compute it, times its factor in a BatchNormalization that
    follows, because the converter merges the factor into the weights. If an addition joins channels of several layers,
    the sum of their sizes counts, where every size is relative to the mean of its layer. GroupNormalization loses whole
    groups, so that the other groups do not change.

    Args:
      network: A functional network. The result shares layers with it.
      share: Share of the channels of a layer to remove, rounded down.

    Raises:
      NotMadeError: If no layer can be cut, or the network contains a Keras 3 model.
    """
    check_layers(network)
    smaller = _remove(network, share)
    if not smaller.removed:
        reasons = ", ".join(f"{layer} ({reason})" for layer, reason in smaller.whole.items()) or "no such layer"
        raise NotMadeError(
            f"channels: expected a layer that can lose {share:g} of its units or filters, received {reasons}",
            "raise channels, remove the variant, or change the network",
        )
    return smaller


def _remove(network: tf_keras.Model, share: float) -> CutNetwork:
    channels = _Channels()
    channels.follow(network)
    kept = channels.choose(share)
    shrunk: dict[str, tf_keras.layers.Layer] = {}
    removed, whole = channels.count_removed(kept), channels.explain_whole(kept)

    def clone(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        if is_functional(layer):
            inner = _remove(layer, share)
            removed.update(inner.removed)
            whole.update(inner.whole)
            return inner.network
        if layer.name not in channels.written:
            return layer
        ends = kept[channels.read[layer.name]], kept[channels.written[layer.name]]
        if all(end.all() for end in ends):
            return layer
        shrunk[layer.name] = _create_smaller(layer, ends[1])
        return shrunk[layer.name]

    smaller = tf_keras.models.clone_model(network, clone_function=clone)
    for name, layer in shrunk.items():
        weights = network.get_layer(name).get_weights()
        kept_in, kept_out = kept[channels.read[name]], kept[channels.written[name]]
        layer.set_weights([_select(values, kept_in, kept_out) for values in weights])
    return CutNetwork(smaller, removed, whole)


def _create_smaller(layer: tf_keras.layers.Layer, kept: npt.NDArray[np.bool_]) -> tf_keras.layers.Layer:
    """Return a layer with the same settings and fewer channels, without weights."""
    config, count = layer.get_config(), int(kept.sum())
    if isinstance(layer, layers.GroupNormalization):
        config["groups"] = layer.groups * count // len(kept)
    for field_name in ("units", "filters"):
        if field_name in config and not isinstance(layer, layers.DepthwiseConv2D):
            config[field_name] = count
    return type(layer).from_config(config)


def _select(
    weights: npt.NDArray[Any], kept_in: npt.NDArray[np.bool_], kept_out: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Return the weights of the remaining channels: [channels], or [..., channels of the input, channels]."""
    if weights.ndim == 1:
        return weights[kept_out]
    weights = weights[..., kept_in, :]
    # The last axis of a depthwise convolution is its number of filters per channel, which is 1.
    return weights if weights.shape[-1] != len(kept_out) else weights[..., kept_out]


@dataclass
class _Channels:
    """The channels of a network.

    Attributes:
      read: Name of a layer with weights → IDs of its input.
      written: Name of a layer with weights → IDs of its output.
      sizes: Size of every channel relative to the mean of its layer; [IDs].
      owners: Name of the layer that computes a channel; by ID.
      edges: Pairs of IDs that can only be removed together; arrays of shape [2, n].
      readers: ID that is kept → why.
      unknown: Name of a dense or convolutional layer with a property that is not supported → the property.
    """

    read: dict[str, Ids] = field(default_factory=dict)
    written: dict[str, Ids] = field(default_factory=dict)
    sizes: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    owners: list[str] = field(default_factory=lambda: [""])
    edges: list[npt.NDArray[np.int64]] = field(default_factory=list)
    readers: dict[int, str] = field(default_factory=lambda: {_FIXED: "joined with other numbers"})
    unknown: dict[str, str] = field(default_factory=dict)

    def follow(self, network: tf_keras.Model) -> None:
        """Follow the channels of a network from its inputs to its outputs."""
        calls = list(list_calls(network))
        counts = Counter(layer.name for layer, _, _ in calls)
        ids: dict[int, Ids] = {}
        for layer, inputs, outputs in calls:
            read = [ids[id(tensor)] for tensor in inputs]
            written = self._pass_on(layer, read, outputs, is_shared=counts[layer.name] > 1)
            if written is None:
                self._keep(read, f"read by {layer.name}")
            for tensor in outputs:
                ids[id(tensor)] = np.full(tensor.shape[-1] or 0, _FIXED) if written is None else written
        self._keep([ids[id(tensor)] for tensor in network.outputs], "the output")

    def _pass_on(
        self, layer: tf_keras.layers.Layer, inputs: Sequence[Ids], outputs: Sequence[Any], is_shared: bool
    ) -> Ids | None:
        """Return the IDs of a layer's output; None if the layer needs all channels of its inputs."""
        kind = type(layer)
        if kind in _PRODUCERS:
            return self._create(layer, inputs[0], is_shared)
        if kind in _MERGES:
            return self._join(inputs)
        if kind is layers.Concatenate:
            return np.concatenate(inputs) if layer.axis in (-1, len(outputs[0].shape) - 1) else None
        if not inputs or not _is_separate(layer):
            return None
        if kind in _SEPARATE:
            return inputs[0]
        if kind is layers.Flatten:
            width = outputs[0].shape[-1]
            return np.tile(inputs[0], width // len(inputs[0])) if width and len(inputs[0]) else None
        if is_shared or not self._find_weights(layer, inputs[0]):
            return None
        self.read[layer.name] = self.written[layer.name] = inputs[0]
        return inputs[0]

    def _create(self, layer: tf_keras.layers.Layer, inputs: Ids, is_shared: bool) -> Ids | None:
        """Create the channels of a dense layer or a convolution."""
        if is_shared or not _is_separate(layer) or getattr(layer, "groups", 1) > 1:
            self.unknown[layer.name] = "used several times" if is_shared else "its activation or groups"
            return None
        kernel = np.abs(layer.kernel.numpy().astype("f8"))
        norms = kernel.sum(axis=tuple(range(kernel.ndim - 1)))
        written = np.arange(len(self.sizes), len(self.sizes) + len(norms))
        self.sizes = np.append(self.sizes, norms / (norms.mean() or 1.0))
        self.owners += [layer.name] * len(norms)
        self.read[layer.name], self.written[layer.name] = inputs, written
        return written

    def _find_weights(self, layer: tf_keras.layers.Layer, ids: Ids) -> bool:
        """Account for a layer whose weights belong to single channels; return whether it is such a layer."""
        if type(layer) is layers.DepthwiseConv2D:
            return bool(layer.depth_multiplier == 1)
        if type(layer) is layers.BatchNormalization:
            scale = np.abs(layer.gamma.numpy()) if layer.scale else 1.0
            factors = scale / np.sqrt(layer.moving_variance.numpy() + layer.epsilon)
            self.sizes[ids] *= factors / (factors.mean() or 1.0)
            return True
        if type(layer) is layers.GroupNormalization:
            groups = ids.reshape(layer.groups if layer.groups > 0 else len(ids), -1)
            self.edges.append(np.stack([groups[:, :-1].ravel(), groups[:, 1:].ravel()]))
            return True
        return False

    def _join(self, inputs: Sequence[Ids]) -> Ids | None:
        """Join the channels of several inputs; None if one of them is broadcast, or consists of other numbers."""
        first = inputs[0]
        if any(len(ids) != len(first) or (ids == _FIXED).any() for ids in inputs):
            return None
        self.edges += [np.stack([first, ids]) for ids in inputs[1:]]
        return first

    def _keep(self, tensors: Iterable[Ids], reader: str) -> None:
        for ids in tensors:
            for number in ids.tolist():
                self.readers.setdefault(number, reader)

    def choose(self, share: float) -> npt.NDArray[np.bool_]:
        """Choose the channels that are kept; [IDs]."""
        groups, sizes = self._groups(), np.zeros(len(self.sizes))
        np.add.at(sizes, groups, self.sizes)
        owners = defaultdict(set)
        for group, owner in zip(groups.tolist(), self.owners, strict=True):
            owners[group].add(owner)
        fixed = set(groups[list(self.readers)].tolist())
        # Joined layers lose the same channels, so the share is counted among the groups of the same layers.
        candidates = defaultdict(list)
        for group, names in owners.items():
            candidates[frozenset(names)].append(group)
        removed: list[int] = []
        for together in candidates.values():
            free = sorted((group for group in together if group not in fixed), key=lambda group: sizes[group])
            removed += free[: int(share * len(together))]
        return ~np.isin(groups, removed)

    def _groups(self) -> npt.NDArray[np.int64]:
        """Return the number of every channel's group; the channels of a group can only be removed together; [IDs]."""
        ends = np.concatenate([np.zeros((2, 0), np.int64), *self.edges], axis=1)
        count = len(self.sizes)
        matrix = coo_matrix((np.ones(ends.shape[1]), ends), (count, count))
        return np.asarray(connected_components(matrix, directed=False)[1], np.int64)

    def count_removed(self, kept: npt.NDArray[np.bool_]) -> dict[str, tuple[int, int]]:
        """Return name of a cut layer → its number of channels before and after."""
        counts = {name: (len(ids), int(kept[ids].sum())) for name, ids in self._produced().items()}
        return {name: (before, after) for name, (before, after) in counts.items() if after < before}

    def explain_whole(self, kept: npt.NDArray[np.bool_]) -> dict[str, str]:
        """Return name of a layer that was not cut → reason."""
        groups = self._groups()
        reasons = {int(groups[number]): reader for number, reader in self.readers.items()}
        produced = {name: ids for name, ids in self._produced().items() if kept[ids].all()}
        return self.unknown | {
            name: next((reasons[group] for group in groups[ids].tolist() if group in reasons), "it has too few")
            for name, ids in produced.items()
        }

    def _produced(self) -> dict[str, Ids]:
        producers = set(self.owners)
        return {name: ids for name, ids in self.written.items() if name in producers}


def _is_separate(layer: tf_keras.layers.Layer) -> bool:
    """Return whether the last axis of a layer's output is the channels, and its activation computes them separately."""
    activation = getattr(layer, "activation", None)
    is_last = getattr(layer, "data_format", "channels_last") == "channels_last"
    if isinstance(layer, (layers.BatchNormalization, layers.GroupNormalization)):
        axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
        is_last = axis in (-1, layer.input_spec.ndim - 1 if layer.input_spec else -1)
    return is_last and (activation is None or getattr(activation, "__name__", "") in _ACTIVATIONS)
