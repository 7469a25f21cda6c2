"""Reports the devices of the operations in a mesh's step; must run before any TensorFlow operation."""

from __future__ import annotations

from typing import Any

from tests.support.runs.trainer_runs import Prepared, plan_of


def devices_of_step() -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Trace a step of an mlp on two by two logical devices: 10 rows, features of 3 numbers and 4 of a table, 8 units.

    Returns:
      Device → sorted (type, shape) of its matrix products and lookups, by their results, and of its dense updates.
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

    def replica(_devices: object = None) -> Replica:
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
        elif operation.type == "ResourceApplyAdam":
            computed = operation.inputs[9]  # the gradient
        else:
            continue
        device = tf.DeviceSpec.from_string(operation.device)
        results.setdefault(f"{device.device_type}:{device.device_index}", []).append(
            (operation.type, tuple(computed.shape))
        )
    return {device: sorted(operations, key=str) for device, operations in results.items()}


def plan_placement(prepared: Prepared, training: dict[str, Any]) -> dict[str, Any]:
    """Return the placement that `runner.py plan` computes for a training, as JSON values."""
    from components.trainer.placement import compute_placement

    plan = plan_of(prepared, training)
    return compute_placement(plan, prepared.uri("Transform", "transform_graph")).to_json()


def bytes_of_step(kind: str, strategy: dict[str, Any]) -> tuple[list[dict[str, object]], dict[str, dict[str, int]]]:
    """Compute a step of a network on four logical devices.

    Args:
      kind: `wide_deep` or `cnn`.
      strategy: Options of the strategy mesh, with four devices.

    Returns:
      The planned memory of every device; and device → bytes of the weights, gradients and moments that are there.
    """
    import dataclasses

    import tensorflow as tf
    import tf_keras

    from components.features.feature_spec import Dense, Ids
    from components.models.build import build
    from components.models.config import ModelConfig
    from components.models.inputs import Inputs
    from components.models.stages import (
        add_gradients,
        assign_stages,
        compute_gradients,
        divide,
        list_variable_stages,
    )
    from components.trainer.config import TrainingConfig
    from components.trainer.mesh import MeshCopies, Replica, create_devices
    from components.trainer.optimizer import create_optimizer
    from components.trainer.placement import place

    training = TrainingConfig.model_validate({"strategy": {"kind": "mesh", **strategy}, "batch_size": 20})
    strategy = training.strategy
    devices = create_devices(training.strategy)
    rows = 20 // strategy.data
    if kind == "cnn":
        config = ModelConfig(kind="cnn", hidden=(8,), filters=(4, 6))
        features = Inputs({"photo": Dense(48, image=(4, 4, 3)), "city": Ids(50, width=4)})
        batch = {"photo": tf.ones([rows, 48]), "city": tf.range(rows, dtype=tf.int64)}
    else:
        config = ModelConfig(kind=kind, hidden=(8, 6))
        features = Inputs({"x": Dense(3), "city": Ids(51, width=4), "words": Ids(9, values=3)})
        words = tf.ones([rows, 3], tf.int64)
        batch = {"x": tf.ones([rows, 3]), "city": tf.range(20, 20 + rows, dtype=tf.int64), "words": words}
    planned = place(training, lambda: build(config, features, 1))

    tf_keras.backend.reset_uids()
    network, optimizer = build(config, features, 1), create_optimizer(0.1)
    optimizer.build(network.trainable_variables)
    layer_stages = assign_stages(network, strategy.place)

    def replica(names: list[str]) -> Replica:
        tf_keras.backend.reset_uids()
        network, optimizer = build(config, features, 1), create_optimizer(0.1, placed=True)
        stages = divide(network, layer_stages, names)

        def compute(inputs):
            return compute_gradients(network, stages, inputs, tf.reduce_mean, strategy.micro_batches)

        return Replica(network, optimizer, compute)

    stage_of = list_variable_stages(network, layer_stages)
    copies = MeshCopies(devices, replica, network, optimizer, strategy.shard_optimizer, stage_of)
    measured = copies.measure_placement(20)
    assert measured.variables == planned.variables
    sizes: dict[str, dict[str, int]] = {}

    def add(name: str, tensor: object, device: str) -> None:
        spec = tf.DeviceSpec.from_string(device)
        memory = sizes.setdefault(f"{spec.device_type}:{spec.device_index}", dict.fromkeys(_KINDS, 0))
        memory[name] += len(tensor.numpy().tobytes())

    for row, copy in zip(devices.devices, copies._replicas, strict=True):
        with tf.device(row[0]):
            _, gradients = copy.loss_and_gradients(batch)
        for variable, gradient in zip(copy.network.trainable_variables, gradients, strict=True):
            # A step moves the rows of a table to their devices when it adds up the gradients of the copies.
            placed = add_gradients([gradient, gradient], variable.device)
            for tensor in [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]:
                device = placed.values.device if isinstance(placed, tf.IndexedSlices) else gradient.device
                add("gradients", tensor, device)
        for variable in copy.network.variables:
            add("weights", variable, variable.device)
        for variable in copy.optimizer.variables:
            if variable.shape.rank:
                add("moments", variable, variable.device)
    return [dataclasses.asdict(memory) for memory in (*planned.devices, *measured.devices)], sizes


_KINDS = ("weights", "gradients", "moments")
