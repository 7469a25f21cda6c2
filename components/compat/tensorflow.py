"""Private parts of TensorFlow and tf_keras, and the environment of every process that imports TensorFlow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
"""Makes tf.keras tf_keras on both release lines, if it is set before TensorFlow's first import."""
ENVIRONMENT = {**LEGACY_KERAS, "TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONUNBUFFERED": "1"}
"""For every process that imports TensorFlow."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore::FutureWarning"}
"""Suppresses warnings about missing GPUs, and those of Google's libraries about the version of Python."""


def set_environment() -> None:
    """Sets ENVIRONMENT in this process, before TensorFlow is imported; values that the user has set remain."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def local_copy(variable: tf.Variable) -> tf.Variable:
    """This replica's component of a mirrored variable, to gather some of its rows; any other variable as it is.

    tf.gather and tf.nn.embedding_lookup read all of a mirrored variable before they gather rows: it has no public
    sparse read. `DistributedVariable._get` returns the component. Checked with TensorFlow 2.16 and 2.21.
    """
    return variable._get() if hasattr(variable, "_get") else variable


def adam_slots(optimizer: tf_keras.optimizers.Adam, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
    """The first and second moment of a variable in an Adam optimizer that is built, shaped like the variable.

    tf_keras keeps them in private lists, in the order of `_index_dict`. Checked with tf_keras 2.16 and 2.21.
    """
    index = optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._momentums[index], optimizer._velocities[index]
