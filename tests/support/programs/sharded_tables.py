"""Tables on parameter servers of this process; must run before any TensorFlow operation."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

SIZES = {"user": 3001, "item": 1000, "site": 300}
"""Feature → its number of IDs."""


def main(
    folder: str, servers: int, saves: bool, strategy_fields: dict[str, Any] | None = None, steps: int = 0
) -> dict[str, Any]:
    """Create tables and their moments on servers, and save or restore them.

    Args:
      folder: Folder of the checkpoint.
      servers: Number of parameter servers; 0 for variables of this process.
      saves: Whether to save random values; otherwise the saved values are restored.
      strategy_fields: Fields of the strategy; by default, `shard_over_mb: 0.001`.
      steps: Number of steps of one worker, after the values are saved or restored.

    Returns:
      Per variable of a table, such as `embedding_8/rows`, the complete values and those of both moments; under
      `…/shards` the devices of its shards, under `…/sizes` their numbers of rows, and under `weights` the values of all
      other weights; with steps, also the results of `_train`.
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
    from components.trainer.cluster.traffic import Traffic
    from components.trainer.config import StrategyConfig
    from components.trainer.optimizer import create_optimizer
    from components.trainer.strategy import create_partitioner, place_tables

    # It counts the connections that are opened from now on.
    traffic = Traffic()
    strategy, started, placed = tf.distribute.get_strategy(), [], contextlib.nullcontext()
    if servers:
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
        fields = {"kind": "parameter_server", "ps": servers, **(strategy_fields or {"shard_over_mb": 0.001})}
        partitioner = create_partitioner(StrategyConfig.model_validate(fields), servers)
        strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
        placed = place_tables(strategy, servers)
    inputs = Inputs(
        {
            "user": Ids(SIZES["user"], width=8, quotients=4),
            "item": Ids(SIZES["item"], width=8),
            "site": Ids(SIZES["site"], width=4),
        }
    )
    with strategy.scope(), placed:
        network = build(ModelConfig(kind="wide_deep", hidden=(4,)), inputs, 1)
        dtype = (strategy_fields or {}).get("gradient_dtype", "float32")
        optimizer = create_optimizer(0.01, table_gradients=dtype)
        optimizer.build(network.trainable_variables)
    checkpoints = Checkpoints(folder, None, 1, network=network, optimizer=optimizer)
    if saves:
        random = np.random.default_rng(1)
        moments = (slot for variable in network.trainable_variables for slot in optimizer_slots(optimizer, variable))
        for variable in network.variables:
            variable.assign(random.normal(size=variable.shape).astype(np.float32))
        for moment in moments:
            # The second moment is a mean of squares.
            moment.assign(np.abs(random.normal(size=moment.shape)).astype(np.float32))
        checkpoints.save(7)
    else:
        assert checkpoints.restore() == 7
    values: dict[str, Any] = {"weights": []}
    if steps:
        values |= _train(strategy, servers, network, optimizer, steps, traffic)
    for layer in network.layers:
        if not isinstance(layer, Table):
            values["weights"] += [weight.numpy() for weight in layer.weights]
            continue
        for name, variable in ((f"{layer.name}/rows", layer.rows), (f"{layer.name}/quotients", layer.quotients)):
            if variable is None:
                continue
            parts = list(getattr(variable, "variables", [variable]))
            slots = [optimizer_slots(optimizer, part) for part in parts]
            values |= {
                name: np.concatenate(parts),
                f"{name}/shards": [part.device.rpartition("/job:")[2] for part in parts],
                f"{name}/sizes": [part.shape[0] for part in parts],
            }
            values |= {f"{name}/{number}": np.concatenate([pair[number] for pair in slots]) for number in (0, 1)}
            values[f"{name}/slots"] = [slot.device.rpartition("/job:")[2] for pair in slots for slot in pair]
    del started
    return values


def _train(strategy: Any, servers: int, network: Any, optimizer: Any, steps: int, traffic: Any) -> dict[str, Any]:
    """Take steps on fixed batches, which contain every ID; return the mean `loss` and the `sent` bytes after step 1."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(2)
    rows = max(SIZES.values())
    batches = [
        {name: tf.constant(random.permutation(rows) % size) for name, size in SIZES.items()} for _ in range(steps)
    ]
    labels = [tf.constant(random.integers(2, size=[rows, 1]), tf.float32) for _ in range(steps)]

    def step(batch: Any, label: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = network(batch, training=True)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    if not servers:
        losses = [float(step(batch, label)) for batch, label in zip(batches, labels, strict=True)]
        return {"loss": np.mean(losses), "sent": 0}
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    run = tf.function(lambda *batch: strategy.run(step, args=batch), autograph=False)
    losses, measured = [], []
    for batch, label in zip(batches, labels, strict=True):
        # Wait, because the order of the batches changes the result.
        result = coordinator.schedule(run, args=(batch, label))
        coordinator.join()
        losses.append(float(result.fetch()))
        measured.append(traffic.measure()[0])
    return {"loss": np.mean(losses), "sent": measured[-1] - measured[0]}
