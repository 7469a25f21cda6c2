"""Prune, cluster and quantize a network with TensorFlow Model Optimization (TFMOT), and train it further.

Only dense and convolutional layers are optimized. Other layers, such as embedding tables and normalizations, are
trained as usual. If several optimizations are combined, later stages preserve the zeros and clusters of earlier stages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras

from components.base.errors import InputError
from components.compat.tfmot import cluster_keeping_zeros
from components.edge.config import VariantConfig
from components.models import keras3
from components.models.layers import Table

layers = tf_keras.layers

Fit = Callable[[tf_keras.Model, list[tf_keras.callbacks.Callback]], None]
"""Trains a network with further callbacks."""

_OPTIMIZED_LAYERS = (layers.Dense, layers.Conv2D)


class NotMadeError(InputError):
    """A variant cannot be created from this model."""


def fine_tune(network: tf_keras.Model, variant: VariantConfig, steps: int, fit: Fit) -> tf_keras.Model:
    """Prune, cluster and quantize a network in this order, as far as the variant asks for it, and train it every time.

    Args:
      network: Trained network. Its weights may change.
      variant: Settings of the variant.
      steps: Number of steps for which `fit` trains.
      fit: Trains the network once per stage.

    Returns:
      A network with the same inputs and outputs.

    Raises:
      NotMadeError: If the network does not contain a layer to optimize, or TFMOT does not support it.
    """
    check_layers(network)
    if not find_optimized_layers(network):
        raise NotMadeError(
            "expected dense or convolutional layers to prune, cluster or quantize, received none",
            "remove the variant, or choose another model",
        )
    if variant.sparsity:
        network = _prune(network, variant, steps, fit)
    if variant.clusters:
        network = _cluster(network, variant.clusters, bool(variant.sparsity), fit)
    if variant.trains_rounding:
        network = _quantize(network, variant, fit)
    return network


def check_layers(network: tf_keras.Model) -> None:
    """Check that the layers of a network can be changed.

    Raises:
      NotMadeError: If the network contains a Keras 3 model, whose layers TFMOT does not know.
    """
    if keras3.find_layers(network):
        raise NotMadeError(
            "expected a tf_keras network to cut, prune, cluster or train with rounding, received a Keras 3 model",
            "quantize after the training instead, or build the network with tf_keras",
        )


def find_optimized_layers(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Return the layers whose weights are pruned, clustered and quantized."""
    return [layer for layer in _list_layers(network) if type(layer) in _OPTIMIZED_LAYERS]


def find_other_layers(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Return the layers with weights that are not optimized."""
    return [layer for layer in _list_layers(network) if layer.weights and type(layer) not in _OPTIMIZED_LAYERS]


def _list_layers(network: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yield the layers of a network and of the networks inside it."""
    for layer in network.layers:
        yield from _list_layers(layer) if isinstance(layer, tf_keras.Model) else [layer]


def _prune(network: tf_keras.Model, variant: VariantConfig, steps: int, fit: Fit) -> tf_keras.Model:
    """Set the smallest weights to 0 during the training (Zhu & Gupta 2017, To prune, or not to prune)."""
    schedules, pruning = tfmot.sparsity.keras, variant.pruning
    begin, end = int(pruning.begin * steps), max(1, int(pruning.end * steps))
    frequency = max(1, (end - begin) // 20)
    options: dict[str, Any] = {}
    if variant.sparsity == "2:4":
        options["sparsity_m_by_n"] = (2, 4)
        options["pruning_schedule"] = schedules.ConstantSparsity(0.5, begin, end, frequency)
    elif pruning.kind == "constant":
        options["pruning_schedule"] = schedules.ConstantSparsity(variant.sparsity, begin, end, frequency)
    else:
        options["pruning_schedule"] = schedules.PolynomialDecay(
            pruning.initial, variant.sparsity, begin, end, frequency=frequency
        )
    wrapped = _wrap_layers(network, lambda layer: schedules.prune_low_magnitude(layer, **options))
    fit(wrapped, [schedules.UpdatePruningStep()])
    return schedules.strip_pruning(wrapped)


def _cluster(network: tf_keras.Model, clusters: int, keep_zeros: bool, fit: Fit) -> tf_keras.Model:
    """Replace every weight by the nearest of a few values, which are trained (Han et al. 2016, Deep Compression).

    A layer with fewer weights than clusters does not change.
    """
    k_means = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS

    def cluster_layer(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        if np.count_nonzero(layer.kernel.numpy()) < clusters:
            return layer
        if keep_zeros:
            return cluster_keeping_zeros(layer, clusters)
        return tfmot.clustering.keras.cluster_weights(layer, clusters, k_means)

    wrapped = _wrap_layers(network, cluster_layer)
    fit(wrapped, [])
    return tfmot.clustering.keras.strip_clustering(wrapped)


def _quantize(network: tf_keras.Model, variant: VariantConfig, fit: Fit) -> tf_keras.Model:
    """Train with the rounding of int8 (Jacob et al. 2018, Quantization and Training of Neural Networks)."""
    if any(isinstance(layer, tf_keras.Model) for layer in network.layers):
        raise NotMadeError(
            "qat: expected layers, received a network inside the network, which TFMOT does not support",
            "quantize after the training instead",
        )
    registry = tfmot.quantization.keras.default_8bit.Default8BitQuantizeRegistry()

    def annotate(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        is_supported = not isinstance(layer, (layers.Lambda, layers.InputLayer)) and registry.supports(layer)
        return tfmot.quantization.keras.quantize_annotate_layer(layer) if is_supported else layer

    with _convert_errors("qat"), tfmot.quantization.keras.quantize_scope({"Table": Table}):
        annotated = tf_keras.models.clone_model(network, clone_function=annotate)
        quantized = tfmot.quantization.keras.quantize_apply(annotated, _choose_scheme(variant))
    fit(quantized, [])
    # During the training, a clustered layer trains centroids instead of its kernel. Stripping writes the kernel.
    return tfmot.experimental.combine.strip_clustering_cqat(quantized) if variant.clusters else quantized


def _choose_scheme(variant: VariantConfig) -> Any:
    """Return the quantization scheme that preserves the zeros and clusters of the variant's earlier stages."""
    if variant.clusters:
        return tfmot.experimental.combine.Default8BitClusterPreserveQuantizeScheme(
            preserve_sparsity=bool(variant.sparsity)
        )
    if variant.sparsity:
        return tfmot.experimental.combine.Default8BitPrunePreserveQuantizeScheme()
    return tfmot.quantization.keras.default_8bit.Default8BitQuantizeScheme()


def _wrap_layers(
    network: tf_keras.Model, wrap: Callable[[tf_keras.layers.Layer], tf_keras.layers.Layer]
) -> tf_keras.Model:
    """Return a network with the same weights, in which the layers to optimize are wrapped."""

    def clone(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        if isinstance(layer, tf_keras.Model):
            return _wrap_layers(layer, wrap)
        return wrap(layer) if type(layer) in _OPTIMIZED_LAYERS else layer

    with _convert_errors("pruning or clustering"):
        return tf_keras.models.clone_model(network, clone_function=clone)


@contextlib.contextmanager
def _convert_errors(optimization: str) -> Iterator[None]:
    """Convert TFMOT's errors about a network to NotMadeError."""
    try:
        yield
    except (
        tf.errors.InvalidArgumentError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # TFMOT raises a KeyError for a user's layer without a complete `get_config`.
        reason = f"{type(error).__name__} {error}"
        raise NotMadeError(
            f"TFMOT does not support the network for {optimization}: {reason}", "remove the variant"
        ) from error
