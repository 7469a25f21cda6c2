"""Tables on parameter servers of this process; must run before any TensorFlow operation."""

from __future__ import annotations

import socket
from typing import Any


def main(folder: str, servers: int, saves: bool) -> dict[str, Any]:
    """Create tables and their moments on servers, and save or restore them.

    Args:
      folder: Folder of the checkpoint.
      servers: Number of parameter servers.
      saves: Whether to save random values; otherwise the saved values are restored.

    Returns:
      Per table the complete values of its rows and of both moments, and under `shards` the devices of its shards.
    """
    import numpy as np
    import tensorflow as tf

    from components.compat.tensorflow import optimizer_slots
    from components.features.feature_spec import Ids
    from components.models.build import build
    from components.models.config import ModelConfig
    from components.models.inputs import Inputs
    from components.models.layers import Table
    from components.trainer.checkpoint import Checkpoints
    from components.trainer.config import StrategyConfig
    from components.trainer.optimizer import create_optimizer
    from components.trainer.strategy import _create_partitioner

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(servers + 1)]
    addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    for sock in sockets:
        sock.close()
    cluster = tf.train.ClusterSpec({"worker": addresses[:1], "ps": addresses[1:]})
    started = [
        tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc")
        for job, count in (("worker", 1), ("ps", servers))
        for index in range(count)
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    config = StrategyConfig(kind="parameter_server", ps=servers, shard_over_mb=0.001)
    strategy = tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=_create_partitioner(config, servers)
    )
    inputs = Inputs({"user": Ids(3001, width=8, quotients=4), "item": Ids(1000, width=8)})
    with strategy.scope():
        network = build(ModelConfig(kind="mlp", hidden=(4,)), inputs, 1)
        optimizer = create_optimizer(0.01)
        optimizer.build(network.trainable_variables)
    checkpoints = Checkpoints(folder, None, 1, network=network, optimizer=optimizer)
    if saves:
        random = np.random.default_rng(1)
        moments = (slot for variable in network.trainable_variables for slot in optimizer_slots(optimizer, variable))
        for variable in (*network.variables, *moments):
            variable.assign(random.normal(size=variable.shape).astype(np.float32))
        checkpoints.save(7)
    else:
        assert checkpoints.restore() == 7
    [table] = [layer for layer in network.layers if isinstance(layer, Table)]
    values: dict[str, Any] = {}
    for name, variable in (("rows", table.rows), ("quotients", table.quotients)):
        parts = list(getattr(variable, "variables", [variable]))
        slots = [optimizer_slots(optimizer, part) for part in parts]
        values |= {
            name: np.concatenate(parts),
            f"{name}/shards": [part.device.rpartition("/job:")[2] for part in parts],
        }
        values |= {f"{name}/{number}": np.concatenate([pair[number] for pair in slots]) for number in (0, 1)}
        values[f"{name}/slots"] = [slot.device.rpartition("/job:")[2] for pair in slots for slot in pair]
    del started
    return values
