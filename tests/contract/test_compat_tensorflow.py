"""The private parts of TensorFlow and tf_keras in components.compat.tensorflow still exist in the installed version."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import tensorflow as tf
import tf_keras

from components.compat.tensorflow import LEGACY_KERAS, adam_slots, local_copy


def test_local_copy_of_a_mirrored_variable_is_one_component() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    assert hasattr(variable, "_get"), "DistributedVariable._get has been renamed"
    component = strategy.run(lambda: local_copy(variable).read_value())
    np.testing.assert_array_equal(component, [1.0, 2.0])
    assert type(local_copy(variable)) is not type(variable)


def test_local_copy_of_a_plain_variable_is_the_variable() -> None:
    variable = tf.Variable([1.0])
    assert local_copy(variable) is variable


def test_slots_of_adam_are_its_moments() -> None:
    optimizer, variable = tf_keras.optimizers.Adam(0.1), tf.Variable([1.0, 2.0])
    other = tf.Variable([[3.0]])
    optimizer.build([other, variable])
    gradient = tf.constant([0.5, -1.0])
    optimizer.apply_gradients([(tf.zeros([1, 1]), other), (gradient, variable)])
    first, second = adam_slots(optimizer, variable)
    message = "tf_keras keeps Adam's moments elsewhere"
    np.testing.assert_allclose(first, 0.1 * gradient, rtol=1e-5, err_msg=message)
    np.testing.assert_allclose(second, 0.001 * gradient**2, rtol=1e-5, err_msg=message)


def test_the_environment_makes_tf_keras_the_keras_of_tensorflow() -> None:
    program = "import tensorflow as tf, tf_keras, sys; sys.exit(tf.keras.Model is not tf_keras.Model)"
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **LEGACY_KERAS}, timeout=120, check=False
    )
    assert ended.returncode == 0, "TF_USE_LEGACY_KERAS no longer selects tf_keras"
