"""Steps of the optimizer with two mirrored replicas; must run before any TensorFlow operation."""

from __future__ import annotations

from typing import Any


def states(start: list[Any], batches: list[Any]) -> list[list[Any]]:
    """Take a step for each batch; each replica has every other row of a batch.

    Args:
      start: the first value of the variable.
      batches: (rows with gradients, gradients) per step.

    Returns:
      The variable and both moments, each as the values of the two replicas.
    """
    import tensorflow as tf

    from components.trainer.optimizer import create_optimizer

    # TensorFlow can divide a CPU into logical devices only before its first operation.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable, optimizer = tf.Variable(start, aggregation=tf.VariableAggregation.MEAN), create_optimizer(0.1)

    def step(rows: Any, values: Any) -> None:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group
        mine = tf.IndexedSlices(values[first::2], rows[first::2], tf.constant([len(start), len(start[0])]))
        optimizer.apply_gradients([(mine, variable)])

    steps = tf.function(lambda *batch: strategy.run(step, batch), autograph=False)
    for rows, values in batches:
        steps(tf.constant(rows, tf.int64), tf.constant(values))
    assert strategy.num_replicas_in_sync == len(variable.values) == 2
    m, v = (next(slot for slot in optimizer.variables if f"/{name}/" in slot.name) for name in "mv")
    return [[value.numpy().tolist() for value in state.values] for state in (variable, m, v)]
