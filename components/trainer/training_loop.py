"""The training loop of every strategy: steps, checkpoints, training curves; it continues from the last checkpoint.

Many optimizer steps run in one call of TensorFlow. All strategies use the same replica step, from a batch to a loss.
They differ in who runs it: replicas that reduce their gradients together (synchronous steps), or independent workers of
a parameter server.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.base.errors import InputError, find
from components.models.stages import Stage, assign_stages, divide, list_variable_stages
from components.trainer import input_wait, placement
from components.trainer.checkpoint import Checkpoints
from components.trainer.cluster import heartbeat
from components.trainer.cluster.task_server import WORKER_FILE
from components.trainer.config import TrainingConfig
from components.trainer.elastic_steps import ElasticSteps
from components.trainer.gradients import LossAndGradients, create_gradient_function
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import Batch, InputPipeline
from components.trainer.input_wait import InputWait, measure_wait
from components.trainer.mesh import Mesh, MeshCopies, Replica
from components.trainer.optimizer import create_optimizer
from components.trainer.prediction_head import PredictionHead
from components.trainer.preemption import PreemptionFlag
from components.trainer.schedule import create_schedule
from components.trainer.steps import (
    ReplicaStep,
    Steps,
    Stop,
    connect_ps_to_chief,
    divide_into_closures,
    report_bytes_by_ps,
    report_steps_by_worker,
)
from components.trainer.strategy import Distribution
from components.trainer.tensorboard_writer import TensorBoardWriter

_CURVE_STEPS = 50
"""Minimum number of steps between two points of the training curves; more if workers would otherwise be idle."""

_BUILD_ERRORS = (
    TypeError,
    ValueError,
    NotImplementedError,
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
)

PREEMPTED = 128 + signal.SIGTERM
"""Exit code of a task that received SIGTERM and has saved a checkpoint. TFJob restarts a task whose code is 128 or
more."""


class NotFiniteError(InputError):
    """The loss has become NaN or infinite, so these hyperparameters do not work."""


@dataclass(frozen=True)
class Learner:
    """The network and the loss to train.

    Attributes:
      build: Builds the network, from transformed features to logits; called in the strategy's scope.
      head: The loss.
      initialize: Called in the strategy's scope with a new network, unless a checkpoint is restored.
      frozen_steps: Number of first steps in which the variables of `frozen_variables` do not change.
    """

    build: Callable[[], tf_keras.Model]
    head: PredictionHead
    initialize: Callable[[tf_keras.Model], None] = lambda network: None
    frozen_steps: int = 0


@dataclass(frozen=True)
class Folders:
    """The folders of a training.

    Attributes:
      checkpoints: Folder of the checkpoints that are restored.
      scratch: Folder to which a process that is not the lead writes its checkpoints; None for the lead.
      events: Folder of TensorBoard's files.
    """

    checkpoints: str
    scratch: str | None
    events: str


@dataclass(frozen=True)
class TrainingLoop:
    """One training, as this process runs it.

    Attributes:
      config: Number of steps, optimizer, checkpoints.
      distribution: The strategy, and the role of this process.
      learner: Network and loss.
      input_pipeline: The training examples.
      folders: The folders to write to.
      on_checkpoint: Called with the step and network of every new checkpoint, and again for a restored checkpoint,
        because the process may have ended before the call returned. Training ends if it returns True.
      is_over: Whether `on_checkpoint` ended the training before a restart.
      reads_checkpoints: Whether `on_checkpoint` reads the checkpoint from its files.
      pause_at: Step at which the training ends for now, with a checkpoint; the schedule still counts all steps of the
        config. If None, the training does not pause.
    """

    config: TrainingConfig
    distribution: Distribution
    learner: Learner
    input_pipeline: InputPipeline
    folders: Folders
    on_checkpoint: Callable[[int, tf_keras.Model], object]
    is_over: bool = False
    reads_checkpoints: bool = True
    pause_at: int | None = None

    @property
    def last_step(self) -> int:
        """The step after which this process ends the training."""
        return min(self.config.steps, self.pause_at or self.config.steps)

    def run(self) -> None:
        """Train until all steps up to a pause are done and saved, or `on_checkpoint` ends the training.

        Raises:
          NotFiniteError: If the loss is no longer finite.
          SystemExit: If this process or another process of the cluster received SIGTERM; a checkpoint is saved.
        """
        with self.distribution.scope():
            network = self._build_network()
            network.summary(print_fn=logging.info)
            optimizer = _create_optimizer(self.config)
            optimizer.build(network.trainable_variables)
        if self._is_coordinated:
            connect_ps_to_chief(self.config.strategy.ps)
            report_bytes_by_ps([*network.variables, *optimizer.variables])
        keep, folders = self.config.checkpoint.keep, self.folders
        checkpoints = Checkpoints(folders.checkpoints, folders.scratch, keep, network=network, optimizer=optimizer)
        deadline = time.monotonic() + 60 * (self.config.max_minutes or math.inf)
        done = checkpoints.restore()
        if done and int(optimizer.iterations.numpy()) != done:
            # Workers of a parameter_server took steps while the checkpoint was written.
            optimizer.iterations.assign(done)
        self.distribution.check_agreement(done)
        if not done:
            with self.distribution.scope():
                self.learner.initialize(network)
        # Create it after the strategy: MultiWorkerMirroredStrategy installs a handler that ignores the signal.
        preemption = PreemptionFlag()
        steps = self.steps(network, optimizer)
        training_seconds = 0.0
        with TensorBoardWriter(folders.events, "train", self.config.tensorboard) as writer:
            writer.graph(network)
            stop = Stop()
            finished = self.is_over or (done > 0 and self.on_checkpoint(done, network) is True)

            def local_stop() -> Stop:
                return Stop(preemption.is_set(), finished)

            # Processes that take their steps together inform each other in the next step that training ends.
            while done < self.last_step and not (stop.finished or (finished and not steps.together)):
                checkpoint_at = min(_find_next_multiple(done, self.config.checkpoint.every_steps), self.last_step)
                started = time.monotonic()
                done, stop = self._advance(steps, optimizer, writer, done, local_stop)
                training_seconds += time.monotonic() - started
                is_late = time.monotonic() > deadline
                # Processes that take their steps together save at the same steps.
                if done >= checkpoint_at or stop.preempted or (is_late and not steps.together):
                    steps.collect()
                    goes_on = done < self.last_step and not (stop.preempted or is_late)
                    checkpoints.save(done, in_background=goes_on and self._saves_in_background(network))
                    writer.checkpoint(done, network, _unwrap_optimizer(optimizer))
                    # Measure no checkpoint after the decision, which the other processes get in these steps.
                    finished = finished or self.on_checkpoint(done, network) is True or is_late
                    if is_late:
                        logging.info("training.max_minutes is over at step %d of %d", done, self.config.steps)
                if stop.preempted:
                    logging.warning("received SIGTERM: saved a checkpoint at step %d", done)
                    raise SystemExit(PREEMPTED)
        logging.info("training took %.1f s, of which it waited %.1f s for input", training_seconds, steps.input_wait)
        input_wait.write(folders.events, InputWait(training_seconds, steps.input_wait))

    def _build_network(self) -> tf_keras.Model:
        """Build the network.

        Raises:
          InputError: If the network cannot be built. A restart would not help.
        """
        try:
            return self.learner.build()
        except _BUILD_ERRORS as error:
            if find(error) is not None:
                raise
            raise InputError(
                f"model: expected a network that can be built, received {type(error).__name__}: {error}",
                "change model, training.precision or training.strategy; the traceback is in the node's log",
            ) from error

    @property
    def _is_coordinated(self) -> bool:
        """Whether this is the coordinator of a parameter_server."""
        return self.config.strategy.kind == "parameter_server" and self.distribution.role is not None

    def _saves_in_background(self, network: tf_keras.Model) -> bool:
        """Whether training continues while a checkpoint is written.

        This is limited to asynchronous workers, which read weights of several steps anyway.
        """
        least = self.config.checkpoint.background_over_mb
        if least is None or not self._is_coordinated or self.reads_checkpoints:
            return False
        weights = sum(int(math.prod(variable.shape)) * variable.dtype.size for variable in network.variables)
        return bool(weights * self.config.optimizer.copies > least * (1 << 20))

    def steps(self, network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer) -> Steps:
        """Return the steps of this strategy."""
        strategy = self.distribution.strategy
        if self.distribution.mesh:
            return self._create_mesh_steps(self.distribution.mesh, network, optimizer)
        # A worker of a parameter server applies the mean gradient of a single batch.
        replicas = 1 if self._is_coordinated else strategy.num_replicas_in_sync
        step = _create_replica_step(network, optimizer, self._create_gradient_function(network, optimizer, replicas))
        more = step, self.input_pipeline, optimizer.iterations, self.config.steps_per_execution
        if self.distribution.elastic:
            return ElasticSteps(self.distribution.elastic, *more)
        return (ParameterServerSteps if self._is_coordinated else SynchronousSteps)(self.distribution, *more)

    def _create_mesh_steps(
        self, mesh: Mesh, network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer
    ) -> SynchronousSteps:
        strategy, distributed = self.config.strategy, self.distribution.strategy
        workers = distributed.num_replicas_in_sync
        stage_of_layer = assign_stages(network, strategy.place) if strategy.place else {}

        def replica(devices: Sequence[str]) -> Replica:
            copy, optimizer = self.learner.build(), _create_optimizer(self.config, placed=True)
            stages = divide(copy, stage_of_layer, devices) if stage_of_layer else []
            return Replica(
                copy, optimizer, self._create_gradient_function(copy, optimizer, mesh.data * workers, stages)
            )

        stage_of = list_variable_stages(network, stage_of_layer) if stage_of_layer else {}
        options = strategy.shard_optimizer, stage_of, distributed if workers > 1 else None
        copies = MeshCopies(mesh, replica, network, optimizer, *options)
        placed = copies.measure_placement(self.config.batch_size // workers)
        for line in (*placed.describe_variables(), *placed.devices):
            logging.info("%s", line)
        placement.write(self.folders.events, placed)
        return MeshSteps(self.distribution, copies, self.input_pipeline, self.config.steps_per_execution)

    def _create_gradient_function(
        self,
        network: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        replicas: int,
        stages: Sequence[Stage] = (),
    ) -> LossAndGradients:
        learner, parts = self.learner, self.config.optimizer.accumulate
        pipeline = learner.frozen_steps, stages, self.config.strategy.micro_batches
        compute = create_gradient_function(network, optimizer, learner.head, replicas, parts, *pipeline)
        if not self.config.jit_compile:
            return compute
        # The update stays outside, because XLA cannot compile the exchange of gradients between processes.
        compute = tf.autograph.experimental.do_not_convert(compute)
        return tf.function(compute, autograph=False, jit_compile=True)  # type: ignore[no-any-return]

    def _advance(
        self,
        steps: Steps,
        optimizer: tf_keras.optimizers.Optimizer,
        writer: TensorBoardWriter,
        done: int,
        local_stop: Callable[[], Stop],
    ) -> tuple[int, Stop]:
        """Run steps up to the next checkpoint or point of the curves; return the step, and whether to stop."""
        writer.profile(done)
        curve = max(_CURVE_STEPS, steps.steps_per_call)
        until = min(
            self.last_step,
            *(_find_next_multiple(done, period) for period in (curve, self.config.checkpoint.every_steps)),
        )
        if isinstance(steps, SynchronousSteps):
            until = min(until, done + steps.steps_per_call)
        started, waited = time.monotonic(), steps.input_wait
        loss, stop = steps.run(until - done, local_stop)
        seconds = time.monotonic() - started
        # Read the optimizer's count, because a coordinator repeats the steps of a worker that exits.
        now = int(optimizer.iterations.numpy())
        heartbeat.send_status("step", now)
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"training: expected a finite loss, received {loss} at step {now}",
                "lower training.learning_rate, or look for extreme values in the features",
            )
        if not until % curve or until == self.last_step:
            rate = (now - done) / seconds
            logging.info("step %d: loss %.5f, %.1f steps/s", now, loss, rate)
            learning_rate = float(_unwrap_optimizer(optimizer).learning_rate.numpy())
            waiting = (steps.input_wait - waited) / seconds
            writer.scalars(now, loss=loss, learning_rate=learning_rate, steps_per_second=rate, input_wait=waiting)
        return now, stop


class SynchronousSteps:
    """Steps of replicas that reduce their gradients together; a single replica is the simplest case.

    Args:
      distribution: The default strategy, MirroredStrategy, MultiWorkerMirroredStrategy or TPUStrategy.
      step: The step of one replica.
      input_pipeline: The training examples.
      iterations: The variable that counts steps, already restored.
      steps_per_call: Number of steps in one call of TensorFlow.
    """

    def __init__(
        self,
        distribution: Distribution,
        step: ReplicaStep,
        input_pipeline: InputPipeline,
        iterations: tf.Variable,
        steps_per_call: int,
    ) -> None:
        self.steps_per_call, self.input_wait = steps_per_call, 0.0
        self.together = distribution.role is not None
        strategy, start = distribution.strategy, int(iterations.numpy())

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            local_replicas = strategy.num_replicas_in_sync // context.num_input_pipelines
            shard = InputShard(context.input_pipeline_id, context.num_input_pipelines, start * local_replicas)
            return input_pipeline.dataset(shard)

        iterator = iter(strategy.distribute_datasets_from_function(dataset))

        def execute(count: tf.Tensor, local_stop: tf.Tensor) -> tf.Tensor:
            def body(done: tf.Tensor, total: tf.Tensor, waited: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                batch, seconds = measure_wait(lambda: next(iterator))
                return done + 1, self._take_step(strategy, step, batch, total), waited + seconds

            start = [0, strategy.run(lambda: tf.constant(0.0)), 0.0]
            _, total, waited = tf.while_loop(lambda done, *_: done < count, body, start, parallel_iterations=1)
            share = waited / strategy.num_replicas_in_sync
            sums = strategy.run(lambda losses: tf.concat([[losses, share], local_stop], axis=0), args=(total,))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

        specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([len(Stop())], tf.float32)]
        self._execute = tf.function(execute, input_signature=specs, autograph=False)

    def run(self, count: int, local_stop: Callable[[], Stop]) -> tuple[float, Stop]:
        """See Steps."""
        total, waited, *stop = self._execute(tf.constant(count), tf.constant(local_stop(), tf.float32)).numpy()
        self.input_wait += float(waited)
        return total / count, Stop(*(flag > 0 for flag in stop))

    def _take_step(
        self, strategy: tf.distribute.Strategy, step: ReplicaStep, batch: Batch, total: tf.Tensor
    ) -> tf.Tensor:
        """Return the total loss of the replicas of this process after one more step."""
        return strategy.run(lambda batch, before: before + step(batch), args=(batch, total))

    def collect(self) -> None:
        """Do nothing: the steps update the loop's network and optimizer."""


class MeshSteps(SynchronousSteps):
    """Steps of a mesh of devices, which hold copies of the loop's network and optimizer.

    Args:
      distribution: The default strategy.
      copies: The copies on the mesh.
      input_pipeline: The training examples.
      steps_per_call: Number of steps in one call of TensorFlow.
    """

    def __init__(
        self, distribution: Distribution, copies: MeshCopies, input_pipeline: InputPipeline, steps_per_call: int
    ) -> None:
        # Disable AutoGraph as in _create_replica_step.
        step = tf.autograph.experimental.do_not_convert(copies.step)
        super().__init__(distribution, step, input_pipeline, copies.iterations, steps_per_call)
        self._copies = copies

    def run(self, count: int, local_stop: Callable[[], Stop]) -> tuple[float, Stop]:
        """See Steps."""
        result = super().run(count, local_stop)
        self._copies.collect_progress()
        return result

    def _take_step(
        self, strategy: tf.distribute.Strategy, step: ReplicaStep, batch: Batch, total: tf.Tensor
    ) -> tf.Tensor:
        # The step is not a replica of the strategy, which only provides the batch of this process.
        return total + step(strategy.run(lambda batch: batch, args=(batch,)))

    def collect(self) -> None:
        """See Steps."""
        self._copies.collect()


class ParameterServerSteps:
    """Steps that a coordinator schedules on workers; steps of a worker that exits are scheduled on another worker.

    A closure runs at least once: a step that an exiting worker had just finished may be repeated, and then the
    optimizer counts it twice.

    Args:
      distribution: A ParameterServerStrategy, and the role of its chief.
      step: The step of one worker.
      input_pipeline: The training examples.
      iterations: The variable that counts steps.
      steps_per_closure: Maximum number of steps in one closure.
    """

    def __init__(
        self,
        distribution: Distribution,
        step: ReplicaStep,
        input_pipeline: InputPipeline,
        iterations: tf.Variable,
        steps_per_closure: int,
    ) -> None:
        strategy = distribution.strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = distribution.workers
        self.steps_per_call = self._workers * steps_per_closure
        self.together, self.input_wait = False, 0.0
        self._steps_by_worker: Counter[int] = Counter()

        def dataset() -> tf.data.Dataset:
            # One graph serves all workers, so it reads the worker's index and the current step when it runs.
            index = tf.strings.to_number(tf.io.read_file(WORKER_FILE), tf.int64)
            return input_pipeline.dataset(InputShard(index, self._workers, iterations.read_value() // self._workers))

        self._iterator = iter(
            self._coordinator.create_per_worker_dataset(tf.function(dataset, autograph=False, input_signature=[]))
        )

        def execute(iterator: Any, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            def body(done: tf.Tensor, total: tf.Tensor, waited: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                batch, seconds = measure_wait(lambda: next(iterator))
                loss = strategy.run(step, args=(batch,))
                return done + 1, total + strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None), waited + seconds

            _, total, waited = tf.while_loop(lambda done, *_: done < count, body, [0, 0.0, 0.0], parallel_iterations=1)
            return total, waited, tf.strings.to_number(tf.io.read_file(WORKER_FILE), tf.int64)

        self._execute = tf.function(execute, autograph=False)

    def run(self, count: int, local_stop: Callable[[], Stop]) -> tuple[float, Stop]:
        """See Steps."""
        counts = divide_into_closures(count, self._workers, self.steps_per_call)
        results = [
            self._coordinator.schedule(self._execute, args=(self._iterator, tf.constant(steps))) for steps in counts
        ]
        self._coordinator.join()
        total = 0.0
        for steps, result in zip(counts, results, strict=True):
            loss, waited, worker = result.fetch()
            total += float(loss)
            self.input_wait += float(waited) / self._workers
            self._steps_by_worker[int(worker)] += steps
        report_steps_by_worker(self._steps_by_worker)
        return total / count, local_stop()

    def collect(self) -> None:
        """Do nothing: the parameter servers hold the variables."""


def _find_next_multiple(done: int, every: int) -> int:
    """Return the next multiple of `every` above `done`."""
    return (done // every + 1) * every


def _create_optimizer(config: TrainingConfig, placed: bool = False) -> tf_keras.optimizers.Optimizer:
    schedule = create_schedule(config.schedule, config.learning_rate, config.steps)
    rates = config.weight_decay, config.table_learning_rate
    short = config.strategy.gradient_dtype
    optimizer = create_optimizer(schedule, *rates, config.batch_size, placed, config.optimizer, short)
    if config.precision == "mixed_float16":
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def _unwrap_optimizer(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """Return the optimizer inside a LossScaleOptimizer, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _create_replica_step(
    network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer, loss_and_gradients: LossAndGradients
) -> ReplicaStep:
    """Return the step of a replica, from a batch to its part of the mean loss; the optimizer adds up the gradients."""

    def step(batch: Batch) -> tf.Tensor:
        loss, gradients = loss_and_gradients(batch)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    # AutoGraph would convert every function of tf_keras that a step calls, which takes a minute without any effect.
    return tf.autograph.experimental.do_not_convert(step)  # type: ignore[no-any-return]
