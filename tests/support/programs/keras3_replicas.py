"""Calls of a Keras 3 model on two mirrored replicas; must run before any TensorFlow operation."""

from __future__ import annotations

from typing import Any


def train(batches: list[Any], momentum: float) -> dict[str, Any]:
    """Call a model with a batch normalization and dropout in training, once per step.

    Args:
      batches: float32 [steps, replicas, rows, columns].
      momentum: Momentum of the moving averages.

    Returns:
      Which values of the last step were dropped, for each replica; moving averages; and the state of the seed, for each
      replica.
    """
    import keras
    import tensorflow as tf

    from components.models import keras3

    # TensorFlow can divide a CPU into logical devices only before its first operation.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    rows = tf.constant(batches)
    with strategy.scope(), keras3.building():
        tensor = keras.Input((rows.shape[-1],), name="x")
        hidden = keras.layers.Dropout(0.5, seed=1)(tensor)
        averaged = keras.layers.BatchNormalization(momentum=momentum)(tensor)
        network = keras3.wrap(keras.Model({"x": tensor}, keras.layers.Concatenate()([hidden, averaged])))

    def step(batch: Any) -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return network({"x": batch[replica]}, training=True)[:, : rows.shape[-1]]

    steps = tf.function(lambda batch: strategy.run(step, (batch,)), autograph=False)
    for batch in rows:
        outputs = steps(batch)
    names = ("seed_generator_state", "moving_mean", "moving_variance")
    seed, mean, variance = (
        next(variable for variable in network.non_trainable_variables if variable.name.endswith(f"{name}:0"))
        for name in names
    )
    return {
        "dropped": [value.numpy() == 0 for value in strategy.experimental_local_results(outputs)],
        "mean": mean.numpy(),
        "variance": variance.numpy(),
        "seeds": [value.numpy().tolist() for value in seed.values],
    }
