"""Steps that a coordinator schedules on the workers that are present, which may change during the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from components.trainer.cluster.membership import ElasticWorkers
from components.trainer.cluster.task_server import WORKER_FILE
from components.trainer.input_pipeline import InputPipeline
from components.trainer.input_wait import measure_wait
from components.trainer.steps import ReplicaStep, Stop, divide_into_closures, report_steps_by_worker

_POLL_SECONDS = 1.0


class ElasticSteps:
    """Steps of workers that join and leave; see steps.Steps.

    The chief assigns the batches: a closure contains the number of its first batch, and the worker that takes it builds
    these batches from all examples. So every epoch contains each row once, whatever the number and the speed of the
    workers, and a closure that a lost worker returns has the same rows on another worker. Between two calls, workers
    that have joined are added and workers that have left are removed; the variables stay where they are.

    As with ParameterServerSteps, the steps of a closure that a lost worker had begun are repeated and counted.

    Args:
      workers: The workers of the cluster.
      step: The step of one worker.
      input_pipeline: The training examples.
      iterations: The variable that counts steps, already restored.
      steps_per_closure: Maximum number of steps in one closure.
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
        self._loss = self.input_wait = 0.0
        strategy, batches = workers.group.strategy, input_pipeline.assign()
        self._examples = iter(
            workers.group.coordinator.create_per_worker_dataset(
                tf.function(batches.examples, autograph=False, input_signature=[])
            )
        )

        def execute(examples: Any, first: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            data = next(examples)

            def body(done: tf.Tensor, total: tf.Tensor, waited: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                batch, seconds = measure_wait(lambda: batches.batch(data, first + done))
                loss = strategy.run(step, args=(batch,))
                return done + 1, total + strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None), waited + seconds

            start = [tf.constant(0, tf.int64), 0.0, 0.0]
            _, total, waited = tf.while_loop(lambda done, *_: done < count, body, start, parallel_iterations=1)
            return total, waited, tf.strings.to_number(tf.io.read_file(WORKER_FILE), tf.int64)

        self._execute = tf.function(execute, autograph=False)

    def run(self, count: int, local_stop: Callable[[], Stop]) -> tuple[float, Stop]:
        """See Steps. After SIGTERM it does not wait for workers, and returns the loss of the previous call."""
        workers, group = self._workers, self._workers.group

        def may_wait() -> bool:
            return not local_stop().preempted

        if not workers.update(may_wait):
            return self._loss, local_stop()
        self.steps_per_call = len(workers.used) * self._steps_per_closure
        counts = divide_into_closures(count, len(workers.used), self.steps_per_call)
        results = []
        for steps in counts:
            arguments = (self._examples, tf.constant(self._next_batch, tf.int64), tf.constant(steps, tf.int64))
            results.append(group.coordinator.schedule(self._execute, args=arguments))
            self._next_batch += steps
        while not group.wait(_POLL_SECONDS):
            workers.check()
            if workers.all_lost and not workers.update(may_wait):
                return self._loss, local_stop()
        total = 0.0
        for steps, result in zip(counts, results, strict=True):
            loss, waited, worker = result.fetch()
            total += float(loss)
            self.input_wait += float(waited) / len(workers.used)
            self._steps_by_worker[int(worker)] += steps
        report_steps_by_worker(self._steps_by_worker)
        self._loss = total / count
        return self._loss, local_stop()

    def collect(self) -> None:
        """Do nothing: the parameter servers hold the variables."""
