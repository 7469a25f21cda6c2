"""Optimizer steps under a strategy, many in one call of TensorFlow: in step with all other replicas, or as a worker's.

Both take the same replica step, from a batch to a loss. What differs is who runs it: replicas that reduce their
gradients together, or the workers of a parameter server, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from components.trainer.cluster.server import WORKER_FILE
from components.trainer.input import Share

ReplicaStep = Callable[[Any], Any]
"""A batch → its loss, after an update of the variables; called in a replica."""
Batches = Callable[[int, Share], Any]
"""(examples of a replica's batch, share) → an endless dataset."""


class Steps(Protocol):
    """Runs steps.

    Attributes:
      at_once: steps that make one call worth its while.
    """

    at_once: int

    def run(self, count: int, leave: Callable[[], bool]) -> tuple[float, bool]:
        """Runs so many steps.

        Args:
          count: how many.
          leave: tells whether this process has to go.

        Returns:
          The mean loss, and whether any process has to go; all of a cluster learn the same.
        """
        ...


class InStep:
    """Steps of replicas that reduce their gradients together; one replica alone is the simplest case.

    Args:
      strategy: the default one, MirroredStrategy, MultiWorkerMirroredStrategy or TPUStrategy.
      step: one replica's.
      batches: each worker's input.
      batch_size: examples per step of all replicas together.
      start: steps that are done.
      at_once: steps of one call.
    """

    def __init__(
        self, strategy: Any, step: ReplicaStep, batches: Batches, batch_size: int, start: int, at_once: int
    ) -> None:
        self.at_once = at_once
        replicas = strategy.num_replicas_in_sync

        def dataset(context: Any) -> Any:
            here = replicas // context.num_input_pipelines
            share = Share(context.input_pipeline_id, context.num_input_pipelines, start * here)
            return batches(batch_size // replicas, share)

        iterator = iter(strategy.distribute_datasets_from_function(dataset))

        def execute(count: Any, leave: Any) -> Any:
            def body(done: Any, total: Any) -> Any:
                total = strategy.run(lambda batch, before: before + step(batch), args=(next(iterator), total))
                return done + 1, total

            total = strategy.run(lambda: tf.constant(0.0))
            _, total = tf.while_loop(lambda done, _: done < count, body, [0, total], parallel_iterations=1)
            told = strategy.run(lambda sum_: tf.stack([sum_, leave]), args=(total,))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, told, axis=None)

        specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)]
        self._execute = tf.function(execute, input_signature=specs, autograph=False)

    def run(self, count: int, leave: Callable[[], bool]) -> tuple[float, bool]:
        """See Steps."""
        total, leaving = self._execute(tf.constant(count), tf.constant(float(leave()))).numpy()
        return total / count, leaving > 0


class Coordinated:
    """Steps that workers take by themselves, as a coordinator hands them out; a worker that dies loses none.

    Its closures are run at least once: a step that a dying worker had just finished may be done again, and then the
    optimizer has counted it.

    Args:
      strategy: a ParameterServerStrategy.
      step: one worker's.
      batches: each worker's input.
      batch_size: examples per step.
      iterations: the variable that counts steps.
      workers: how many there are.
      per_closure: steps of one closure, at most.
    """

    def __init__(
        self,
        strategy: Any,
        step: ReplicaStep,
        batches: Batches,
        batch_size: int,
        iterations: Any,
        workers: int,
        per_closure: int,
    ) -> None:
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers, self.at_once = workers, workers * per_closure

        def dataset() -> Any:
            # One graph serves all workers, so each finds out by itself which one it is, and, if it comes back from
            # the dead, where training is.
            index = tf.strings.to_number(tf.io.read_file(WORKER_FILE), tf.int64)
            return batches(batch_size, Share(index, workers, iterations.read_value() // workers))

        self._iterator = iter(
            self._coordinator.create_per_worker_dataset(tf.function(dataset, autograph=False, input_signature=[]))
        )

        def execute(iterator: Any, count: Any) -> Any:
            def body(done: Any, total: Any) -> Any:
                loss = strategy.run(step, args=(next(iterator),))
                return done + 1, total + strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)

            _, total = tf.while_loop(lambda done, _: done < count, body, [0, 0.0], parallel_iterations=1)
            return total

        self._execute = tf.function(execute, autograph=False)

    def run(self, count: int, leave: Callable[[], bool]) -> tuple[float, bool]:
        """See Steps."""
        # As many closures for each worker, so that none waits for the others at the end.
        closures = min(count, self._workers * -(-count // self.at_once))
        counts = [(count + each) // closures for each in range(closures)]
        totals = [
            self._coordinator.schedule(self._execute, args=(self._iterator, tf.constant(each))) for each in counts
        ]
        self._coordinator.join()
        return sum(float(total.fetch()) for total in totals) / count, leave()
