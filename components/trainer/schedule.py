"""The learning rate of each step."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from components.trainer.optimizer_config import ScheduleConfig

_schedules = tf_keras.optimizers.schedules
Schedule: TypeAlias = tf_keras.optimizers.schedules.LearningRateSchedule


def create_schedule(config: ScheduleConfig, learning_rate: float, steps: int) -> Schedule:
    """Create the schedule of a training; see the fields of ScheduleConfig.

    Args:
      config: Kind and options.
      learning_rate: The rate after the warm-up.
      steps: Number of steps of the training, with the warm-up.
    """
    warm_up = config.warm_up_steps
    schedule = _create_without_warm_up(config, learning_rate, steps - warm_up)
    return WarmUp(schedule, learning_rate, warm_up) if warm_up else schedule


def _create_without_warm_up(config: ScheduleConfig, learning_rate: float, steps: int) -> Schedule:
    if config.kind == "polynomial":
        return _schedules.PolynomialDecay(learning_rate, steps, config.end * learning_rate, config.power)
    if config.kind == "exponential":
        return _schedules.ExponentialDecay(learning_rate, config.every_steps or steps, config.factor)
    if config.kind == "piecewise":
        boundaries = sorted(config.shares)
        rates = [learning_rate, *(learning_rate * config.shares[step] for step in boundaries)]
        # Keras' boundary is the last step with the earlier rate, counted from 0.
        return _schedules.PiecewiseConstantDecay([step - config.warm_up_steps - 1 for step in boundaries], rates)
    if config.kind == "constant":
        return _schedules.PolynomialDecay(learning_rate, steps, learning_rate)
    return _schedules.CosineDecay(learning_rate, steps, config.end)


class WarmUp(Schedule):  # type: ignore[misc]
    """A learning rate that rises in a straight line before another schedule begins.

    Args:
      then: The schedule, whose first step follows the last step of the warm-up.
      learning_rate: The rate at the end of the warm-up.
      steps: Number of steps of the warm-up.
    """

    def __init__(self, then: Schedule, learning_rate: float, steps: int) -> None:
        self._then, self._learning_rate, self._steps = then, learning_rate, steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the rate of a step, counted from 0; a float32 scalar."""
        done = tf.cast(step, tf.float32)
        rising = self._learning_rate * (done + 1) / self._steps
        return tf.where(done < self._steps, rising, self._then(tf.maximum(done - self._steps, 0.0)))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"then": self._then, "learning_rate": self._learning_rate, "steps": self._steps}
