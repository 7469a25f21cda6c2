"""Adam, or Adagrad, for tables of ids: a step costs what its batch names, however long the tables are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.models import sharding

_NO_MATRIX = r"^(?!.*/kernel)"
"""Names of the variables that no weight decay touches: biases, scales, and the tables of ids, of which a step names
only a few rows."""

_FIRST = 0.1
"""What Adagrad's sums begin with, as in TensorFlow; about what ten examples add."""


def adam(
    learning_rate: Any, weight_decay: float = 0.0, table_learning_rate: float | None = None, batch_size: int = 1
) -> Any:
    """Adam (Kingma & Ba 2015, Adam: A Method for Stochastic Optimization), lazy where a gradient is sparse.

    Args:
      learning_rate: a float, or a tf_keras LearningRateSchedule.
      weight_decay: share of a matrix that a step takes away, times the learning rate.
      table_learning_rate: the rate of Adagrad, which then takes the place of Adam where a gradient is sparse.
      batch_size: examples that the loss is the mean of; Adagrad's rate goes by their sum.

    Returns:
      A tf_keras optimizer, for any strategy; create and build it under the strategy's scope.
    """
    # XLA would compile anew for every number of ids that a batch happens to name.
    optimizer = LazyAdam(learning_rate, weight_decay=weight_decay or None, jit_compile=False)
    if table_learning_rate:
        optimizer.adagrad = (table_learning_rate, batch_size)
    optimizer.exclude_from_weight_decay(var_names=[_NO_MATRIX])
    return optimizer


class LazyAdam(tf_keras.optimizers.Adam):  # type: ignore[misc]
    """Adam that, given tf.IndexedSlices, reads and writes only the rows they name, as TensorFlow Addons' LazyAdam did.

    tf_keras' own decays both moments of every row in every step, and moves every row by them: for a table of a million
    ids and a batch of a thousand, a thousand times the work. Here a row that is not named keeps its value and its
    moments. The bias correction goes by the optimizer's steps, not by how often a row was named. Dense gradients are
    tf_keras' own business.

    Attributes:
      adagrad: Adagrad's rate for sparse gradients, and the examples that a loss is the mean of; None: Adam for all.
    """

    adagrad: tuple[float, int] | None = None

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
        if self.adagrad:
            self._adagrad(gradient, variable, v, *self.adagrad)
            return
        new_m = self.beta_1 * tf.gather(m, rows) + (1 - self.beta_1) * gradient.values
        new_v = self.beta_2 * tf.gather(v, rows) + (1 - self.beta_2) * tf.square(gradient.values)
        step = tf.cast(self.iterations + 1, dtype)
        correction = tf.sqrt(1 - tf.pow(self.beta_2, step)) / (1 - tf.pow(self.beta_1, step))
        rate = tf.cast(self.learning_rate, dtype) * correction
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        variable.scatter_sub(tf.IndexedSlices(rate * new_m / (tf.sqrt(new_v) + self.epsilon), rows))

    def _adagrad(self, gradient: Any, variable: Any, squares: Any, rate: float, examples: int) -> None:
        """Adagrad (Duchi et al. 2011, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization).

        Adam moves a row by about its rate each time that the row is named, whatever its gradient. An id that has a few
        rows only is then learned by heart. Here a row's first steps are as large as its gradient says, and each one
        makes the later ones smaller, so one pass over the rows is nearly as good as these can be.

        Args:
          gradient: tf.IndexedSlices, as above.
          variable: as above.
          squares: the sum of squared gradients so far, in the shape of the variable.
          rate: constant; the sums are schedule enough.
          examples: that the loss is the mean of.
        """
        summed = gradient.values * tf.cast(examples, variable.dtype)
        new = tf.gather(squares, gradient.indices) + tf.square(summed)
        squares.scatter_update(tf.IndexedSlices(new, gradient.indices))
        variable.scatter_sub(tf.IndexedSlices(rate * summed / tf.sqrt(new + _FIRST), gradient.indices))
