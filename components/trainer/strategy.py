"""From the config to a tf.distribute strategy, and what a process must set before TensorFlow starts for it."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow as tf
import tf_keras

from components.errors import InputError
from components.models import sharding
from components.trainer.cluster.roles import Role
from components.trainer.cluster.server import inter_op_threads
from components.trainer.config import StrategyConfig, TrainingConfig

_MOST_SHARDS = 1 << 10


def prepare(role: Role | None, precision: str) -> None:
    """Settles threads, GPU memory and precision; before the first op of this process."""
    if role is not None:
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads())
    for gpu in tf.config.list_physical_devices("GPU"):
        # All of a GPU's memory would be taken by the first process that looks at it.
        tf.config.experimental.set_memory_growth(gpu, True)
    tf_keras.mixed_precision.set_global_policy(precision)


def strategy(config: TrainingConfig, role: Role | None) -> Any:
    """The strategy of this process; under parameter_server it waits until the whole cluster is up.

    Raises:
      InputError: the cluster or the machine does not fit the strategy.
    """
    chosen = config.strategy
    if chosen.kind == "mirrored":
        return tf.distribute.MirroredStrategy()
    if chosen.kind == "tpu":
        return _tpu()
    if not chosen.is_cluster:
        return tf.distribute.get_strategy()
    if role is None:
        raise InputError(
            f"training.strategy.kind: {chosen.kind} takes a cluster, and this process is no task of one",
            "choose training.cluster: local, or start it where TF_CONFIG is set",
        )
    kinds = {kind for kind, addresses in role.cluster.items() if addresses}
    if chosen.kind == "multi_worker" and "ps" not in kinds:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if chosen.kind == "multi_worker" or not {"worker", "ps"} <= kinds:
        takes = "workers alone" if chosen.kind == "multi_worker" else "a chief, workers and ps"
        told = ", ".join(f"{len(role.cluster[kind])} {kind}" for kind in sorted(kinds))
        raise InputError(
            f"{chosen.kind} takes {takes}; TF_CONFIG tells of {told}",
            "give the cluster these tasks, or choose the strategy that fits them",
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    partitioner = _partitioner(chosen, len(role.cluster["ps"]))
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def _partitioner(config: StrategyConfig, servers: int) -> sharding.Partitioner:
    size = int(config.shard_over_mb * (1 << 20))
    partitioners = tf.distribute.experimental.partitioners
    chosen: sharding.Partitioner
    if config.partitioner == "fixed":
        chosen = partitioners.FixedShardsPartitioner(servers)
    elif config.partitioner == "max_size":
        chosen = partitioners.MaxSizePartitioner(max_shard_bytes=size, max_shards=_MOST_SHARDS)
    else:
        chosen = partitioners.MinSizePartitioner(min_shard_bytes=size, max_shards=servers)
    return sharding.of_tables(chosen)


def _tpu() -> Any:
    try:
        # Not TPUClusterResolver.connect, which TensorFlow 2.16 calls wrongly itself.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(
            "training.strategy.kind: tpu, and no TPU answers here",
            "run on a TPU VM, or name the TPU in TPU_NAME; mirrored trains on GPUs",
        ) from error


def part(strategy: Any) -> None:
    """Waits for all replicas in step, and lets them go; a replica that left early would take the others down.

    The first time all meet, each learns that all have done their work. But who learns it first may be gone before the
    others have heard, for they hear it from each other. So all meet once more, and how that ends matters to nobody.
    """
    _meet(strategy)
    try:
        _meet(strategy)
    except tf.errors.OpError as error:
        logging.info("another replica has left already: %s", error.message)


def _meet(strategy: Any) -> None:
    told = strategy.run(tf.function(lambda: tf.constant(1.0)))
    strategy.reduce(tf.distribute.ReduceOp.SUM, told, axis=None).numpy()
