"""The optimizers; Adam with sparse updates: a step updates only the rows of a table that its batch contains."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import local_copy, merge_rows, optimizer_slots
from components.trainer.optimizer_config import OptimizerConfig

_NO_KERNEL = r"^(?!.*/kernel)"
"""Matches the variables without weight decay: biases, scales, and tables of IDs, because a step updates few rows."""

_INITIAL_ACCUMULATOR = 0.1
"""The initial value of Adagrad's accumulators, as in TensorFlow; about ten examples add as much."""


def create_optimizer(
    learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
    weight_decay: float = 0.0,
    table_learning_rate: float | None = None,
    rows: int = 1,
    placed: bool = False,
    config: OptimizerConfig | None = None,
    table_gradients: str = "float32",
) -> tf_keras.optimizers.Optimizer:
    """Create an optimizer for any strategy; create and build it in the strategy's scope.

    Args:
      learning_rate: A constant, or a schedule.
      weight_decay: Fraction of a matrix that a step subtracts, times the learning rate.
      table_learning_rate: Learning rate of Adagrad, which then replaces Adam for sparse gradients.
      rows: Number of rows in the mean loss; Adagrad uses the gradient of their sum.
      placed: Whether to update each variable on the variable's device, without a strategy of tf.distribute.
      config: Kind and options; by default, Adam.
      table_gradients: The dtype in which the gradients of tables of IDs are sent to the device of the table.
    """
    config = config or OptimizerConfig()
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "sgd": (tf_keras.optimizers.SGD, {"momentum": config.momentum, "nesterov": config.nesterov}),
        "adagrad": (tf_keras.optimizers.Adagrad, {}),
        "ftrl": (
            tf_keras.optimizers.Ftrl,
            {"l1_regularization_strength": config.l1, "l2_regularization_strength": config.l2},
        ),
        "lion": (tf_keras.optimizers.Lion, {}),
    }
    kind, options = kinds.get(config.kind, (LazyAdam, {}))
    if config.clip_norm is not None or config.clip_value is not None:
        kind = type(kind.__name__, (_MergedRows, kind), {})
        options |= {"global_clipnorm": config.clip_norm, "clipvalue": config.clip_value}
    if table_gradients != "float32":
        kind = type(kind.__name__, (_ShortGradients, kind), {"transfer_dtype": tf.as_dtype(table_gradients)})
    if placed:
        kind = type(kind.__name__, (_Placed, kind), {})
    # XLA would compile again for every new number of ids in a batch.
    optimizer = kind(learning_rate, weight_decay=weight_decay or None, jit_compile=False, **options)
    if table_learning_rate:
        optimizer.adagrad = (table_learning_rate, rows)
    optimizer.exclude_from_weight_decay(var_names=[_NO_KERNEL])
    return optimizer


class LazyAdam(tf_keras.optimizers.Adam):  # type: ignore[misc]
    """Adam (Kingma & Ba 2015) that reads and writes only the rows of a tf.IndexedSlices gradient.

    It resembles TensorFlow Addons' LazyAdam. The Adam of tf_keras decays both moments of every row in every step, and
    updates every row: for a table of a million ids and a batch of a thousand, a thousand times the work. Here a row
    without a gradient keeps its value and its moments. The bias correction depends on the optimizer's steps, not on the
    number of a row's updates. A dense gradient is applied by one operation of TensorFlow, where tf_keras has twenty.

    Attributes:
      adagrad: Learning rate of Adagrad for sparse gradients, and number of rows in the mean loss; None for Adam.
    """

    adagrad: tuple[float, int] | None = None

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        """Update one variable, or one shard of it.

        Args:
          gradient: Dense; or sparse, with each row at most once, which `apply_gradients` ensures.
          variable: Float variable, shape [rows, …] if the gradient is sparse.
        """
        dtype = variable.dtype
        m, v = (local_copy(slot) for slot in optimizer_slots(self, variable))
        step = tf.cast(self.iterations + 1, dtype)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=tf.pow(self.beta_1, step),
                beta2_power=tf.pow(self.beta_2, step),
                lr=tf.cast(self.learning_rate, dtype),
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )
            return
        rows = gradient.indices
        if self.adagrad:
            self._adagrad(gradient, variable, v, *self.adagrad)
            return
        new_m = self.beta_1 * tf.gather(m, rows) + (1 - self.beta_1) * gradient.values
        new_v = self.beta_2 * tf.gather(v, rows) + (1 - self.beta_2) * tf.square(gradient.values)
        correction = tf.sqrt(1 - tf.pow(self.beta_2, step)) / (1 - tf.pow(self.beta_1, step))
        rate = tf.cast(self.learning_rate, dtype) * correction
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        variable.scatter_sub(tf.IndexedSlices(rate * new_m / (tf.sqrt(new_v) + self.epsilon), rows))

    def _adagrad(
        self, gradient: tf.IndexedSlices, variable: tf.Variable, squares: tf.Variable, rate: float, examples: int
    ) -> None:
        """Update rows by Adagrad.

        Adam changes a row by about its rate in every update, however small the gradient, so IDs with few examples
        overfit. Adagrad's first updates of a row are proportional to its gradient, and every update makes later updates
        smaller, so one pass over the examples is nearly enough.

        Source: Duchi et al. 2011, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization.

        Args:
          gradient: Each row at most once.
          variable: Shape [rows, …].
          squares: The sum of squared gradients so far, shape of the variable.
          rate: Constant, because the sums decrease the update.
          examples: Number of examples in the mean loss.
        """
        summed = gradient.values * tf.cast(examples, variable.dtype)
        new = tf.gather(squares, gradient.indices) + tf.square(summed)
        squares.scatter_update(tf.IndexedSlices(new, gradient.indices))
        variable.scatter_sub(tf.IndexedSlices(rate * summed / tf.sqrt(new + _INITIAL_ACCUMULATOR), gradient.indices))


class _MergedRows(tf_keras.optimizers.Optimizer):  # type: ignore[misc]
    """An optimizer that merges the gradients of the same row of a table before it clips them."""

    def _clip_gradients(self, gradients: list[tf.Tensor | tf.IndexedSlices]) -> list[tf.Tensor | tf.IndexedSlices]:
        clipped: list[tf.Tensor | tf.IndexedSlices] = super()._clip_gradients(merge_rows(self, gradients))
        return clipped


class _ShortGradients(tf_keras.optimizers.Optimizer):  # type: ignore[misc]
    """An optimizer that sends the gradients of tables to the device of the table in 16 bits.

    They are converted after they were merged and clipped, on the device that computes them. `update_step` runs on the
    device of the variable, which converts them back, so that all sums are computed in the dtype of the variable.

    Attributes:
      transfer_dtype: The dtype of the gradients that are sent.
    """

    transfer_dtype = tf.bfloat16

    def _internal_apply_gradients(self, grads_and_vars: list[tuple[Any, tf.Variable]]) -> tf.Tensor:
        return super()._internal_apply_gradients(
            [(_cast_rows(gradient, self.transfer_dtype), variable) for gradient, variable in grads_and_vars]
        )

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        """Update one variable; see LazyAdam."""
        super().update_step(_cast_rows(gradient, variable.dtype), variable)


def _cast_rows(gradient: tf.Tensor | tf.IndexedSlices, dtype: tf.DType) -> tf.Tensor | tf.IndexedSlices:
    """Return a gradient with its rows in another dtype; a dense gradient is not changed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.IndexedSlices(tf.cast(gradient.values, dtype), gradient.indices, gradient.dense_shape)


class _Placed(tf_keras.optimizers.Optimizer):  # type: ignore[misc]
    """An optimizer that updates each variable on its device; a strategy of tf.distribute does so by itself."""

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        """Update one variable; see LazyAdam."""
        with tf.device(variable.device):
            super().update_step(gradient, variable)
