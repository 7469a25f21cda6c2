"""The one training loop, for every strategy: steps, checkpoints, curves; it goes on where the last checkpoint was."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.errors import InputError
from components.trainer.checkpoint import Checkpoints
from components.trainer.cluster import signs
from components.trainer.cluster.roles import Role
from components.trainer.config import TrainingConfig
from components.trainer.curves import Curves
from components.trainer.optimizer import adam
from components.trainer.steps import Batches, Coordinated, InStep, Steps
from components.trainer.target import Target

_CURVE_STEPS = 50
"""Steps between two points of the training curves; more, where that would leave workers idle."""

PREEMPTED = 128 + signal.SIGTERM
"""Exit code of a task that was asked to go and has saved. From 128 on, Kubernetes' TFJob starts a task again."""


@dataclass(frozen=True)
class Fit:
    """One training.

    Attributes:
      config: how long, how large, how often saved.
      strategy: of TensorFlow.
      role: this process in its cluster; None if it is alone.
      build: makes the network.
      target: the loss.
      batches: the input.
      checkpoints: the folder they are kept in.
      scratch: the folder this process writes them to instead, if it is not the lead.
      curves: the folder TensorBoard reads.
      at_checkpoint: called with each checkpoint's step and the network; says True if training is to end.
      begin: called in the strategy's scope with a network that no checkpoint was found for.
    """

    config: TrainingConfig
    strategy: Any
    role: Role | None
    build: Callable[[], Any]
    target: Target
    batches: Batches
    checkpoints: str
    scratch: str | None
    curves: str
    at_checkpoint: Callable[[int, Any], object]
    begin: Callable[[Any], None] = lambda network: None

    def to_the_end(self) -> None:
        """Trains until all steps are done and saved.

        Raises:
          NotFiniteError: the loss is no longer finite; it is an InputError.
          SystemExit: this process, or another one of the cluster, was asked to end by SIGTERM; all is saved.
        """
        with self.strategy.scope():
            network = self.build()
            network.summary(print_fn=logging.info)
            optimizer = _optimizer(self.config)
            optimizer.build(network.trainable_variables)
        keep = self.config.checkpoint.keep
        checkpoints = Checkpoints(self.checkpoints, self.scratch, keep, network=network, optimizer=optimizer)
        done = checkpoints.restore()
        if not done:
            with self.strategy.scope():
                self.begin(network)
        asked_to_go = _Asked()
        steps = self._steps(network, optimizer, done)
        enough = False
        with Curves(self.curves, "train", self.config.tensorboard) as curves:
            while done < self.config.steps:
                due = _next(done, self.config.checkpoint.every_steps)
                done, leaving = self._go_on(steps, optimizer, curves, done, asked_to_go)
                if done >= min(due, self.config.steps) or leaving:
                    checkpoints.save(done)
                    curves.checkpoint(done, network)
                    enough = self.at_checkpoint(done, network) is True
                if leaving:
                    logging.warning("asked to end by SIGTERM: saved at step %d", done)
                    raise SystemExit(PREEMPTED)
                if enough:
                    break

    def _go_on(
        self, steps: Steps, optimizer: Any, curves: Curves, done: int, leave: Callable[[], bool]
    ) -> tuple[int, bool]:
        """A few steps, up to the next point of the curves or checkpoint at most; what is done then, and who leaves."""
        curves.profile(done)
        curve = max(_CURVE_STEPS, steps.at_once)
        target = min(self.config.steps, *(_next(done, each) for each in (curve, self.config.checkpoint.every_steps)))
        if isinstance(steps, InStep):
            target = min(target, done + steps.at_once)
        began = time.monotonic()
        loss, leaving = steps.run(target - done, leave)
        seconds = time.monotonic() - began
        # What is counted is what was done: a coordinator does steps of a dying worker again.
        now = int(optimizer.iterations.numpy())
        signs.tell("step", now)
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"training: expected a finite loss, received {loss} at step {now}",
                "lower training.learning_rate, or look for values in the features that are out of all proportion",
            )
        if not target % curve or target == self.config.steps:
            rate = (now - done) / seconds
            logging.info("step %d: loss %.5f, %.1f steps/s", now, loss, rate)
            learning_rate = float(_plain(optimizer).learning_rate.numpy())
            curves.scalars(now, loss=loss, learning_rate=learning_rate, steps_per_second=rate)
        return now, leaving

    def _steps(self, network: Any, optimizer: Any, done: int) -> Steps:
        if self.config.strategy.kind != "parameter_server" or self.role is None:
            step = _replica_step(network, optimizer, self.target, self.strategy.num_replicas_in_sync)
            at_once = self.config.steps_per_execution
            return InStep(self.strategy, step, self.batches, self.config.batch_size, done, at_once)
        # Each worker's mean loss is whole by itself.
        step = _replica_step(network, optimizer, self.target, replicas=1)
        return Coordinated(
            self.strategy,
            step,
            self.batches,
            self.config.batch_size,
            optimizer.iterations,
            self.role.workers,
            self.config.steps_per_execution,
        )


def _next(done: int, every: int) -> int:
    """The next multiple above."""
    return (done // every + 1) * every


def _optimizer(config: TrainingConfig) -> Any:
    schedule = tf_keras.optimizers.schedules.CosineDecay(config.learning_rate, config.steps)
    optimizer = adam(schedule, config.weight_decay, config.table_learning_rate, config.batch_size)
    if config.precision == "mixed_float16":
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def _plain(optimizer: Any) -> Any:
    """The optimizer below the one that scales the loss, if there is one."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _replica_step(network: Any, optimizer: Any, target: Target, replicas: int) -> Callable[[Any], Any]:
    """From a batch to this replica's part of the mean loss over all of them; the optimizer sums their gradients."""
    scales = _plain(optimizer) is not optimizer

    def step(batch: Any) -> Any:
        features, label = batch
        with tf.GradientTape() as tape:
            losses = target.losses(label, network(features, training=True))
            loss = (tf.reduce_mean(losses) + sum(network.losses)) / replicas
            watched = optimizer.get_scaled_loss(loss) if scales else loss
        gradients = tape.gradient(watched, network.trainable_variables)
        if scales:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    # AutoGraph would rewrite every function of tf_keras that a step calls, which takes a minute and changes nothing.
    return tf.autograph.experimental.do_not_convert(step)  # type: ignore[no-any-return]


class NotFiniteError(InputError):
    """The loss has become NaN or infinite: with these hyperparameters nothing is learned."""


class _Asked:
    """Whether SIGTERM has come, which is how a machine that is taken away, or a user, says so."""

    def __init__(self) -> None:
        self._asked = False
        # After the strategy is made: MultiWorkerMirroredStrategy takes the signal for itself, and does nothing.
        signal.signal(signal.SIGTERM, self._note)

    def __call__(self) -> bool:
        return self._asked

    def _note(self, _signum: int, _frame: Any) -> None:
        self._asked = True
