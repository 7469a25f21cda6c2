"""The tf.distribute strategy of a config, and the TensorFlow settings that a process needs before its first op."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.compat.coordinator import begin_at, find_context
from components.compat.tensorflow import leave_unconverted
from components.models import sharding
from components.trainer.cluster import heartbeat, stale_contexts
from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.membership import ElasticWorkers
from components.trainer.cluster.task_server import inter_op_threads
from components.trainer.cluster.tf_config import Role
from components.trainer.config import StrategyConfig, TrainingConfig
from components.trainer.mesh import Mesh, create_devices
from components.trainer.table_memory import MOST_SHARDS, choose_first_ps

_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Distribution:
    """How this process takes part in a training.

    Attributes:
      strategy: The strategy of this process.
      role: The role of this process in a cluster; None if it trains alone.
      mesh: The devices of a mesh, which replace the strategy's devices; None without a mesh.
      elastic: The workers that may join and leave; None if the workers do not change.
    """

    strategy: tf.distribute.Strategy
    role: Role | None = None
    mesh: Mesh | None = None
    elastic: ElasticWorkers | None = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Enter the scope for the network and the optimizer of the loop: the strategy's; for a mesh, the CPU."""
        with contextlib.ExitStack() as scopes:
            scopes.enter_context(tf.device("CPU:0") if self.mesh else self.strategy.scope())
            if self.role is not None and (servers := len(self.role.cluster.get("ps", ()))):
                scopes.enter_context(place_tables(self.strategy, servers))
            yield

    def check_agreement(self, step: int) -> None:
        """Check that all synchronous replicas have restored the same checkpoint; a read may have failed in one of them.

        Args:
          step: Step of the checkpoint in this process.

        Raises:
          RuntimeError: If another replica has restored another checkpoint. A restart helps.
        """
        if not isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return
        steps = self.strategy.run(tf.function(lambda: tf.constant(step, tf.int64)))
        total = int(self.strategy.reduce(tf.distribute.ReduceOp.SUM, steps, axis=None))
        if total != step * self.strategy.num_replicas_in_sync:
            raise RuntimeError(f"this replica has restored step {step}, and another replica another step")

    @property
    def is_lead(self) -> bool:
        """Whether this process writes the checkpoints that are restored, and the model."""
        return self.role is None or self.role.is_lead

    @property
    def workers(self) -> int:
        """Number of tasks that compute gradients."""
        return self.role.workers if self.role else 1


def prepare(role: Role | None, config: TrainingConfig) -> None:
    """Set threads, precision and the code that AutoGraph leaves alone; call it before the first op of this process.

    Args:
      role: Role of this process; None if it trains alone.
      config: Threads and precision.
    """
    threads = config.threads
    if threads.intra is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads.intra)
    if role is not None:
        tf.config.threading.set_inter_op_parallelism_threads(max(threads.inter or 0, inter_op_threads()))
    elif threads.inter is not None:
        tf.config.threading.set_inter_op_parallelism_threads(threads.inter)
    tf_keras.mixed_precision.set_global_policy(config.precision)
    leave_unconverted("components", "tf_keras")


def distribute(config: TrainingConfig, role: Role | None) -> Distribution:
    """Create the strategy of this process.

    Under parameter_server it waits until the complete cluster is up. For an elastic cluster it waits for all ps and
    `min_workers` workers.

    Args:
      config: The training section.
      role: Role of this process; None if it is not a task of a cluster.

    Raises:
      InputError: If the cluster or the machine does not fit the strategy.
    """
    # TensorFlow creates logical devices before the strategy of several processes starts its server.
    mesh = create_devices(config.strategy) if config.strategy.has_mesh else None
    is_coordinator = role is not None and config.strategy.kind == "parameter_server"
    if role is not None and is_coordinator:
        stale_contexts.close(role)
    with limit_to_loopback(role):
        created = _create_strategy(config.strategy, role)
    if is_coordinator:
        heartbeat.send_status("context", find_context())
    if isinstance(created, ElasticWorkers):
        return Distribution(created.group.strategy, role, elastic=created)
    return Distribution(created, role, mesh)


def wait_for_all_replicas(strategy: tf.distribute.Strategy) -> None:
    """Wait until all synchronous replicas have called this, because a replica that exits earlier makes others fail.

    After a first barrier every replica knows that all have finished. But a replica may exit before the others have
    received the result, which they receive from each other. So there is a second barrier, whose failure is harmless.
    """
    _wait_at_barrier(strategy)
    try:
        _wait_at_barrier(strategy)
    except tf.errors.OpError as error:
        logging.info("another replica has already exited: %s", error.message)


def _create_strategy(config: StrategyConfig, role: Role | None) -> tf.distribute.Strategy | ElasticWorkers:
    if config.kind == "mirrored":
        return tf.distribute.MirroredStrategy()
    if config.kind == "tpu":
        return _connect_tpu()
    if not config.is_cluster:
        return tf.distribute.get_strategy()
    if role is None:
        raise InputError(
            f"training.strategy.kind: {config.kind} expected a task of a cluster, received a process without TF_CONFIG",
            "set TF_CONFIG, or let the Trainer start the tasks",
        )
    kinds = {kind for kind, addresses in role.cluster.items() if addresses}
    if config.kind == "multi_worker" and "ps" not in kinds:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if config.kind == "multi_worker" or not {"worker", "ps"} <= kinds:
        expected = "workers only" if config.kind == "multi_worker" else "a chief, workers and ps"
        received = ", ".join(f"{len(role.cluster[kind])} {kind}" for kind in sorted(kinds))
        raise InputError(
            f"TF_CONFIG: expected {expected} for {config.kind}, received {received}",
            "give the cluster these tasks, or choose the strategy that fits them",
        )
    partitioner = create_partitioner(config, len(role.cluster["ps"]))
    if config.is_elastic:
        return _create_elastic_workers(config, role, partitioner)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def _create_elastic_workers(config: StrategyConfig, role: Role, partitioner: sharding.Partitioner) -> ElasticWorkers:
    addresses = len(role.cluster["worker"])
    if addresses < config.min_workers:
        raise InputError(
            f"TF_CONFIG: expected at least {config.min_workers} workers (training.strategy.min_workers), "
            f"received {addresses}",
            "give the cluster an address for every worker that may join, as many as training.strategy.max_workers",
        )
    return ElasticWorkers(role, config.min_workers, partitioner)


def create_partitioner(config: StrategyConfig, servers: int) -> sharding.Partitioner:
    """Return the function that divides the tables of IDs.

    Args:
      config: Partitioner of each table.
      servers: Number of ps.
    """
    partitioners = tf.distribute.experimental.partitioners

    def create(table: str) -> sharding.Partitioner:
        partition = config.partition(table)
        size = int((partition.shard_over_mb or 0) * (1 << 20))
        kinds: dict[str, Callable[[], sharding.Partitioner]] = {
            "fixed": lambda: partitioners.FixedShardsPartitioner(partition.shards or servers),
            "max_size": lambda: partitioners.MaxSizePartitioner(max_shard_bytes=size, max_shards=MOST_SHARDS),
            "min_size": lambda: partitioners.MinSizePartitioner(min_shard_bytes=size, max_shards=servers),
            "hash": lambda: partitioners.FixedShardsPartitioner(1),
        }
        return kinds[partition.partitioner]()

    return sharding.for_tables_only(create)


def place_tables(strategy: tf.distribute.ParameterServerStrategy, servers: int) -> AbstractContextManager[None]:
    """Return a context in which the first shard of a table of IDs is placed on the ps of `choose_first_ps`.

    Args:
      strategy: The strategy, in whose scope the context is used.
      servers: Number of ps.
    """
    return sharding.place_tables(lambda table: begin_at(strategy, choose_first_ps(table, servers)))


def _connect_tpu() -> tf.distribute.TPUStrategy:
    name = os.environ.get("TPU_NAME", "local")
    try:
        if "://" in name:
            # TensorFlow would wait forever for a server that does not answer.
            address = urlsplit(name)
            socket.create_connection((address.hostname or "", address.port or 0), _CONNECT_SECONDS).close()
        # TPUClusterResolver.connect omits an argument of initialize_tpu_system_impl in TensorFlow 2.16.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(
            f"training.strategy.kind: expected a TPU for tpu, received no answer (TPU_NAME: {name})",
            "run on a TPU VM, or name the TPU in TPU_NAME; mirrored trains on GPUs",
        ) from error


def _wait_at_barrier(strategy: tf.distribute.Strategy) -> None:
    tokens = strategy.run(tf.function(lambda: tf.constant(1.0)))
    strategy.reduce(tf.distribute.ReduceOp.SUM, tokens, axis=None).numpy()
