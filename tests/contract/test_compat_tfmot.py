"""The private parts of TensorFlow Model Optimization in components.compat.tfmot exist in the installed version."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_model_optimization as tfmot
import tf_keras

from components.compat.tfmot import cluster_keeping_zeros

pytestmark = pytest.mark.both_lines


@pytest.mark.extended
def test_zeros_are_a_cluster() -> None:
    dense = tf_keras.layers.Dense(8)
    network = tf_keras.Sequential([tf_keras.Input((8,)), dense])
    kernel = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    kernel[np.abs(kernel) < 0.5] = 0
    dense.set_weights([kernel, np.zeros(8)])
    clone = tf_keras.models.clone_model(network, clone_function=lambda layer: cluster_keeping_zeros(layer, 4))
    clustered = tfmot.clustering.keras.strip_clustering(clone).layers[-1].kernel.numpy()
    assert len(np.unique(clustered)) <= 4
    np.testing.assert_array_equal(clustered == 0, kernel == 0)
