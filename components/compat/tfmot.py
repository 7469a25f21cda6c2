"""Private parts of TensorFlow Model Optimization."""

from __future__ import annotations

import tensorflow_model_optimization as tfmot
import tf_keras


def cluster_keeping_zeros(layer: tf_keras.layers.Layer, clusters: int) -> tf_keras.layers.Layer:
    """Wrap a layer as tfmot.clustering.keras.cluster_weights does, but keep one cluster at 0.

    TFMOT's guide on sparsity-preserving clustering uses the same private function, because the public interface does
    not include it. Checked with TFMOT 0.8.1.

    Args:
      layer: Layer whose weights are pruned.
      clusters: Number of distinct weights, including 0.

    Returns:
      The wrapped layer.
    """
    from tensorflow_model_optimization.python.core.clustering.keras.experimental import cluster

    initialization = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS
    return cluster.cluster_weights(layer, clusters, initialization, preserve_sparsity=True)
