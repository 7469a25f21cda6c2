"""Private parts of TensorFlow's ClusterCoordinator: workers that join and leave while the variables stay on the ps."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tensorflow.python.eager import context

_WORKER = "worker"


@contextmanager
def begin_at(strategy: tf.distribute.ParameterServerStrategy, ps: int) -> Iterator[None]:
    """Place the first shard of a variable that is created in the block on this ps, and the others on the next ones.

    The strategy places variables and shards in turn, by a private count. Variables that are created after the block
    continue where the previous ones ended. Checked with TensorFlow 2.16 and 2.21.

    Args:
      strategy: The strategy in whose scope the variable is created.
      ps: Number of the ps.
    """
    extended = strategy.extended
    count, extended._variable_count = extended._variable_count, ps
    try:
        yield
    finally:
        extended._variable_count = count


def find_context() -> int:
    """Return the ID of this process's context on the servers that it is connected to; see grpc.close_context.

    Connecting to a cluster changes the ID, and `WorkerGroup.replace` does not. Checked with TensorFlow 2.16.
    """
    return int(pywrap_tfe.TFE_GetContextId(context.context()._context_handle))


class WorkerGroup:
    """A ParameterServerStrategy and its coordinator, which can run while some workers are absent.

    TensorFlow connects to all workers of a cluster before it starts. When a worker is lost, the
    WorkerPreemptionHandler asks all workers for their status and waits for every answer. No worker is then used until
    the last worker is back.

    Here the cluster definition numbers all workers, but the process connects only to workers that are present. The
    coordinator's thread of an absent worker finds that its device is unknown. It returns its closure to the queue and
    waits until `replace` connects to the worker. `update_server_def` keeps the variables, and the iterators of workers
    that stay.

    Checked with TensorFlow 2.16 and 2.21, whose `cluster_coordinator` modules differ in one word of a comment.

    Args:
      cluster: Addresses by job name (`chief`, `worker`, `ps`), including all workers that may ever join.
      role: Job name of this process in the cluster.
      present: Numbers of the workers to connect to. The constructor waits for them and for the parameter servers.
      partitioner: Function that divides variables, see tf.distribute.ParameterServerStrategy. If None, variables are
        not divided.
    """

    def __init__(
        self, cluster: Mapping[str, Sequence[str]], role: str, present: Collection[int], partitioner: Any
    ) -> None:
        self._workers = cluster[_WORKER]
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            _Present({kind: list(addresses) for kind, addresses in cluster.items()}, present),
            task_type=role,
            task_id=0,
            rpc_layer="grpc",
        )
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)

    @functools.cached_property
    def coordinator(self) -> tf.distribute.coordinator.ClusterCoordinator:
        """The strategy's coordinator."""
        coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        cluster = coordinator._cluster
        cluster.failure_handler.stop()
        cluster.failure_handler = _Waiting(context.get_server_def(), cluster)
        for worker in cluster.workers:
            worker.failure_handler = cluster.failure_handler
        return coordinator

    def find_lost_workers(self) -> frozenset[int]:
        """Return the numbers of the workers that were absent at the last connection or have failed since."""
        return frozenset(worker.worker_index for worker in self._cluster.workers if worker._is_dead_with_error)

    def wait(self, seconds: float) -> bool:
        """Wait until all closures have ended.

        Args:
          seconds: Maximum time to wait.

        Returns:
          Whether all closures have ended within this time.

        Raises:
          OpError: A closure or a parameter server has failed.
        """
        return bool(self._cluster.closure_queue.wait(seconds))

    def replace(self, present: Collection[int]) -> None:
        """Connect to the given workers only, and wait until all of them have answered.

        Args:
          present: Numbers of the workers.

        Raises:
          OpError: A worker or a parameter server has failed in the meantime.
        """
        definition = copy.deepcopy(context.get_server_def())
        for job in definition.cluster.job:
            if job.name == _WORKER:
                job.tasks.clear()
                job.tasks.update({number: self._workers[number] for number in present})
        handler = self._cluster.failure_handler
        with handler._cluster_update_lock:
            context.context().update_server_def(definition)
            handler._worker_up_cond.notify_all()

    @property
    def _cluster(self) -> Any:
        return self.coordinator._cluster


class _Present(tf.train.ClusterSpec):  # type: ignore[misc]  # TensorFlow does not declare types
    """A cluster whose definition contains only the workers that are present.

    The workers keep their numbers and their device filters, as if all workers were present.
    """

    def __init__(self, cluster: Mapping[str, Sequence[str]], present: Collection[int]) -> None:
        super().__init__(cluster)
        self._present = present

    def as_cluster_def(self) -> Any:
        definition = copy.deepcopy(super().as_cluster_def())
        for job in definition.job:
            for number in set(job.tasks) - set(self._present) if job.name == _WORKER else ():
                del job.tasks[number]
        return definition


class _Waiting(cluster_coordinator.WorkerPreemptionHandler):  # type: ignore[misc]  # TensorFlow does not declare types
    """A handler that does not probe lost workers. Their threads wait until `WorkerGroup.replace` wakes them."""

    def _preemption_handler(self) -> None:
        pass
