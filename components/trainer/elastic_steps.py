"""Steps that a coordinator schedules on the workers that are present, which may change during the run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from components.trainer.cluster.membership import ElasticWorkers
from components.trainer.cluster.task_server import WORKER_FILE
from components.trainer.input_pipeline import InputPipeline
from components.trainer.steps import ReplicaStep, Stop

_POLL_SECONDS = 1.0


class ElasticSteps:
    """Steps of workers that join and leave; see steps.Steps.

    The chief assigns the batches: a closure has the number of its first batch, and the worker that takes it makes these
    batches from all examples. So every epoch has each row once, with any number of workers and for workers of any
    speed, and a closure that a lost worker returns has the same rows on another one. Between two calls, workers that
    have joined are added and those that have left are removed; the variables stay where they are.

    As with ParameterServerSteps, the steps of a closure that a lost worker had begun are repeated and counted.

    Args:
      workers: those of the cluster.
      step: one worker's.
      input_pipeline: the training examples.
      iterations: the variable that counts steps, already restored.
      steps_per_closure: steps of one closure, at most.
    """

    together = False

    def __init__(
        self,
        workers: ElasticWorkers,
        step: ReplicaStep,
        input_pipeline: InputPipeline,
        iterations: tf.Variable,
        steps_per_closure: int,
    ) -> None:
        self._workers, self._steps_per_closure = workers, steps_per_closure
        self.steps_per_call = len(workers.used) * steps_per_closure
        self._next_batch = int(iterations.numpy())
        self._steps_by_worker: Counter[int] = Counter()
        self._loss = 0.0
        strategy, batches = workers.group.strategy, input_pipeline.assigned()
        self._examples = iter(
            workers.group.coordinator.create_per_worker_dataset(
                tf.function(batches.examples, autograph=False, input_signature=[])
            )
        )

        def execute(examples: Any, first: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            held = next(examples)

            def body(done: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                loss = strategy.run(step, args=(batches.batch(held, first + done),))
                return done + 1, total + strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)

            start = [tf.constant(0, tf.int64), 0.0]
            _, total = tf.while_loop(lambda done, _: done < count, body, start, parallel_iterations=1)
            return total, tf.strings.to_number(tf.io.read_file(WORKER_FILE), tf.int64)

        self._execute = tf.function(execute, autograph=False)

    def run(self, count: int, own: Callable[[], Stop]) -> tuple[float, Stop]:
        """See Steps. After SIGTERM it does not wait for workers, and the loss is that of the call before."""
        workers, group = self._workers, self._workers.group

        def may_wait() -> bool:
            return not own().preempted

        if not workers.update(may_wait):
            return self._loss, own()
        self.steps_per_call = len(workers.used) * self._steps_per_closure
        # The same number of closures for each worker, so that none waits for the others at the end.
        closures = min(count, len(workers.used) * -(-count // self.steps_per_call))
        counts = [(count + each) // closures for each in range(closures)]
        results = []
        for each in counts:
            arguments = (self._examples, tf.constant(self._next_batch, tf.int64), tf.constant(each, tf.int64))
            results.append(group.coordinator.schedule(self._execute, args=arguments))
            self._next_batch += each
        while not group.wait(_POLL_SECONDS):
            workers.check()
            if workers.all_lost and not workers.update(may_wait):
                return self._loss, own()
        total = 0.0
        for each, result in zip(counts, results, strict=True):
            loss, worker = result.fetch()
            total += float(loss)
            self._steps_by_worker[int(worker)] += each
        steps = ", ".join(f"worker-{number} {taken}" for number, taken in sorted(self._steps_by_worker.items()))
        logging.info("steps by worker: %s", steps)
        self._loss = total / count
        return self._loss, own()

    def collect(self) -> None:
        """See Steps: the parameter servers hold the variables themselves."""
