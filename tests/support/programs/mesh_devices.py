"""Reports the devices of the operations in a mesh's step; must run before any TensorFlow operation."""

from __future__ import annotations


def devices_of_step() -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Trace a step of an mlp on two by two logical devices: 10 rows, features of 3 numbers and 4 of a table, 8 units.

    Returns:
      Device → sorted (type, result shape) of its matrix products, lookups and dense updates.
    """
    import tensorflow as tf

    from components.features.feature_spec import Dense, Ids
    from components.models.build import build
    from components.models.config import ModelConfig
    from components.models.inputs import Inputs
    from components.trainer.config import StrategyConfig
    from components.trainer.mesh import MeshCopies, Replica, create_devices
    from components.trainer.optimizer import create_optimizer

    devices = create_devices(StrategyConfig(kind="mesh", data=2, model=2))
    config, inputs = ModelConfig(kind="mlp", hidden=(8,)), Inputs({"x": Dense(3), "city": Ids(50, width=4)})

    def replica() -> Replica:
        network, optimizer = build(config, inputs, 1), create_optimizer(0.1, placed=True)
        optimizer.build(network.trainable_variables)

        def compute(batch):
            features, label = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(network(features, training=True) - label))
            return loss, tape.gradient(loss, network.trainable_variables)

        return Replica(network, optimizer, compute)

    whole = replica()
    copies = MeshCopies(devices, replica, whole.network, whole.optimizer)
    step = tf.autograph.experimental.do_not_convert(copies.step)
    specs = [({"x": tf.TensorSpec([10, 3]), "city": tf.TensorSpec([10], tf.int64)}, tf.TensorSpec([10, 1]))]
    graph = tf.function(step, input_signature=specs, autograph=False).get_concrete_function().graph
    results: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "ResourceGather"):
            computed = operation.outputs[0]
        elif operation.type == "AssignSubVariableOp":
            computed = operation.inputs[1]
        else:
            continue
        device = tf.DeviceSpec.from_string(operation.device)
        results.setdefault(f"{device.device_type}:{device.device_index}", []).append(
            (operation.type, tuple(computed.shape))
        )
    return {device: sorted(operations, key=str) for device, operations in results.items()}
