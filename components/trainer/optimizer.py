"""Adam for tables of ids: a step costs what its batch names, however long the tables are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.models import sharding


def adam(learning_rate: Any) -> Any:
    """Adam (Kingma & Ba 2015, Adam: A Method for Stochastic Optimization), lazy where a gradient is sparse.

    Args:
      learning_rate: a float, or a tf_keras LearningRateSchedule.

    Returns:
      A tf_keras optimizer, for any strategy; create and build it under the strategy's scope.
    """
    # XLA would compile anew for every number of ids that a batch happens to name.
    return LazyAdam(learning_rate, jit_compile=False)


class LazyAdam(tf_keras.optimizers.Adam):  # type: ignore[misc]
    """Adam that, given tf.IndexedSlices, reads and writes only the rows they name, as TensorFlow Addons' LazyAdam did.

    tf_keras' own decays both moments of every row in every step, and moves every row by them: for a table of a million
    ids and a batch of a thousand, a thousand times the work. Here a row that is not named keeps its value and its
    moments. The bias correction goes by the optimizer's steps, not by how often a row was named. Dense gradients are
    tf_keras' own business.
    """

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Updates one variable, or one shard of it.

        Args:
          gradient: tf.Tensor, or tf.IndexedSlices that name a row once at most; `apply_gradients` sees to that.
          variable: float variable, shape [rows, …] if the gradient is sparse.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable)
            return
        dtype, rows = variable.dtype, gradient.indices
        index = self._index_dict[self._var_key(variable)]
        m, v = sharding.here(self._momentums[index]), sharding.here(self._velocities[index])
        new_m = self.beta_1 * tf.gather(m, rows) + (1 - self.beta_1) * gradient.values
        new_v = self.beta_2 * tf.gather(v, rows) + (1 - self.beta_2) * tf.square(gradient.values)
        step = tf.cast(self.iterations + 1, dtype)
        correction = tf.sqrt(1 - tf.pow(self.beta_2, step)) / (1 - tf.pow(self.beta_1, step))
        rate = tf.cast(self.learning_rate, dtype) * correction
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        variable.scatter_sub(tf.IndexedSlices(rate * new_m / (tf.sqrt(new_v) + self.epsilon), rows))
