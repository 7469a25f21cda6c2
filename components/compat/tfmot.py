"""Private parts of TensorFlow Model Optimization."""

from __future__ import annotations

import tensorflow_model_optimization as tfmot
import tf_keras


def cluster_keeping_zeros(layer: tf_keras.layers.Layer, clusters: int) -> tf_keras.layers.Layer:
    """Wrap a layer like tfmot.clustering.keras.cluster_weights, and keep one of the clusters at 0.

    The guide of sparsity-preserving clustering imports it from there: it is not in the public interface. Checked with
    TFMOT 0.8.1.

    Args:
      layer: With pruned weights.
      clusters: Distinct weights, 0 among them.
    """
    from tensorflow_model_optimization.python.core.clustering.keras.experimental import cluster

    initialization = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS
    return cluster.cluster_weights(layer, clusters, initialization, preserve_sparsity=True)
