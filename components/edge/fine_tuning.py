"""Pruning, clustering and quantization-aware training of a network, by TensorFlow Model Optimization (TFMOT).

Dense and convolutional layers are covered; others, such as tables of ids and normalizations, keep their weights as they
are trained. In a network that is trained several times, what earlier parts have made is kept: zeros and clusters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras

from components.compat.tfmot import cluster_keeping_zeros
from components.edge.config import VariantConfig
from components.errors import InputError
from components.models.layers import Table

layers = tf_keras.layers

Fit = Callable[[tf_keras.Model, list[tf_keras.callbacks.Callback]], None]
"""Trains a network."""

_COVERED = (layers.Dense, layers.Conv2D)
_RAMP = 0.6
"""The part of the steps in which the sparsity rises; in the others the remaining weights adapt."""


class NotMadeError(InputError):
    """A variant cannot be made of this model."""


def fine_tuned(network: tf_keras.Model, variant: VariantConfig, steps: int, fit: Fit) -> tf_keras.Model:
    """Trains a network further: with fewer weights, with fewer distinct weights, then with rounding.

    Args:
      network: trained; its weights may change.
      variant: what to do.
      steps: those that `fit` takes.
      fit: called for each part.

    Returns:
      A network with the same inputs and outputs.

    Raises:
      NotMadeError: no layer is covered, or TFMOT does not support the network.
    """
    if not covered(network):
        raise NotMadeError(
            "expected dense or convolutional layers to prune, cluster or quantize, received none",
            "remove the variant, or choose another model",
        )
    if variant.sparsity:
        network = _pruned(network, variant.sparsity, steps, fit)
    if variant.clusters:
        network = _clustered(network, variant.clusters, bool(variant.sparsity), fit)
    if variant.trains_rounding:
        network = _rounded(network, variant, fit)
    return network


def covered(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns the layers whose weights are pruned, clustered and quantized."""
    return [layer for layer in _leaves(network) if type(layer) in _COVERED]


def left_out(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns the layers that have weights and are not covered."""
    return [layer for layer in _leaves(network) if layer.weights and type(layer) not in _COVERED]


def _leaves(network: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    for layer in network.layers:
        yield from _leaves(layer) if isinstance(layer, tf_keras.Model) else [layer]


def _pruned(network: tf_keras.Model, sparsity: float | str, steps: int, fit: Fit) -> tf_keras.Model:
    """Zeros the smallest weights step by step (Zhu & Gupta 2017, To prune, or not to prune)."""
    until = max(1, int(_RAMP * steps))
    every = max(1, until // 20)
    options: dict[str, Any] = (
        {
            "pruning_schedule": tfmot.sparsity.keras.ConstantSparsity(0.5, 0, frequency=every),
            "sparsity_m_by_n": (2, 4),
        }
        if sparsity == "2:4"
        else {"pruning_schedule": tfmot.sparsity.keras.PolynomialDecay(0.0, sparsity, 0, until, frequency=every)}
    )
    wrapped = _wrapped(network, lambda layer: tfmot.sparsity.keras.prune_low_magnitude(layer, **options))
    fit(wrapped, [tfmot.sparsity.keras.UpdatePruningStep()])
    return tfmot.sparsity.keras.strip_pruning(wrapped)


def _clustered(network: tf_keras.Model, clusters: int, keep_zeros: bool, fit: Fit) -> tf_keras.Model:
    """Replaces each weight by the nearest of few, which are trained (Han et al. 2016, Deep Compression).

    A layer with fewer weights than clusters stays as it is.
    """
    k_means = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS

    def clustered(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        if np.count_nonzero(layer.kernel.numpy()) < clusters:
            return layer
        if keep_zeros:
            return cluster_keeping_zeros(layer, clusters)
        return tfmot.clustering.keras.cluster_weights(layer, clusters, k_means)

    wrapped = _wrapped(network, clustered)
    fit(wrapped, [])
    return tfmot.clustering.keras.strip_clustering(wrapped)


def _rounded(network: tf_keras.Model, variant: VariantConfig, fit: Fit) -> tf_keras.Model:
    """Trains with the rounding of int8 (Jacob et al. 2018, Quantization and Training of Neural Networks)."""
    if any(isinstance(layer, tf_keras.Model) for layer in network.layers):
        raise NotMadeError(
            "qat: expected layers, received a network inside the network, which TFMOT does not support",
            "quantize after the training instead",
        )
    registry = tfmot.quantization.keras.default_8bit.Default8BitQuantizeRegistry()

    def annotated(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        known = not isinstance(layer, (layers.Lambda, layers.InputLayer)) and registry.supports(layer)
        return tfmot.quantization.keras.quantize_annotate_layer(layer) if known else layer

    with _of_tfmot("qat"), tfmot.quantization.keras.quantize_scope({"Table": Table}):
        annotations = tf_keras.models.clone_model(network, clone_function=annotated)
        rounded = tfmot.quantization.keras.quantize_apply(annotations, _scheme(variant))
    fit(rounded, [])
    # While it is trained, a clustered layer has other weights than its kernel.
    return tfmot.experimental.combine.strip_clustering_cqat(rounded) if variant.clusters else rounded


def _scheme(variant: VariantConfig) -> Any:
    if variant.clusters:
        return tfmot.experimental.combine.Default8BitClusterPreserveQuantizeScheme(
            preserve_sparsity=bool(variant.sparsity)
        )
    if variant.sparsity:
        return tfmot.experimental.combine.Default8BitPrunePreserveQuantizeScheme()
    return tfmot.quantization.keras.default_8bit.Default8BitQuantizeScheme()


def _wrapped(network: tf_keras.Model, wrap: Callable[[tf_keras.layers.Layer], tf_keras.layers.Layer]) -> tf_keras.Model:
    """The network with its covered layers wrapped; it has the same weights."""

    def clone(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        if isinstance(layer, tf_keras.Model):
            return _wrapped(layer, wrap)
        return wrap(layer) if type(layer) in _COVERED else layer

    with _of_tfmot("pruning or clustering"):
        return tf_keras.models.clone_model(network, clone_function=clone)


@contextlib.contextmanager
def _of_tfmot(what: str) -> Iterator[None]:
    """Raises TFMOT's errors about a network as NotMadeError."""
    try:
        yield
    except (
        tf.errors.InvalidArgumentError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # It reads a layer's config, which not all layers of users have; then it raises a KeyError.
        reason = f"{type(error).__name__} {error}"
        raise NotMadeError(f"TFMOT does not support the network for {what}: {reason}", "remove the variant") from error
