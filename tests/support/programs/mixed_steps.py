"""Steps of networks in mixed precision, on two workers that add up their gradients."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from components.trainer import strategy
from components.trainer.cluster import tf_config
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig

STEPS = 3
_ROWS = 8
_RESULTS = "results.json"


def main(folder: Path, policy: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Take steps of every model in one cluster.

    Args:
      folder: Folder of the logs.
      policy: `training.precision`.
      models: Sections `model`; those of a kind for images get a column of images.

    Returns:
      Model → its losses on the lead, and the dtypes of its variables and of its logits.
    """
    config = TrainingConfig.model_validate(
        {"strategy": {"kind": "multi_worker", "workers": 2}, "precision": policy, "max_restarts": 0}
    )
    Supervisor(config, functools.partial(_train, folder, config, models), folder / "logs").run()
    results: dict[str, Any] = json.loads((folder / _RESULTS).read_text())
    return results


def _train(folder: Path, config: TrainingConfig, models: list[dict[str, Any]], role: Role) -> None:
    strategy.prepare(role, config)
    distribution = strategy.distribute(config, tf_config.role())
    results = {str(model): _take_steps(model, config, distribution) for model in models}
    if role.is_lead:
        (folder / _RESULTS).write_text(json.dumps(results))
    strategy.wait_for_all_replicas(distribution.strategy)


def _take_steps(model: dict[str, Any], config: TrainingConfig, distribution: strategy.Distribution) -> Any:
    import numpy as np
    import tensorflow as tf

    from components.features.feature_spec import Dense, Ids
    from components.models.build import build
    from components.models.config import IMAGE_KINDS, ModelConfig
    from components.models.inputs import Inputs
    from components.trainer import training_loop
    from components.trainer.gradients import create_gradient_function

    class Head:
        """A prediction head with the crossentropy of a binary label."""

        def losses(self, label: Any, logits: Any) -> Any:
            flat = tf.reshape(logits, [_ROWS, -1])
            losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.broadcast_to(label, tf.shape(flat)), flat)
            return tf.reduce_mean(losses, axis=1)

    features: dict[str, Any] = {"a": Dense(), "words": Ids(40, values=3), "x": Ids(5)}
    features |= {"past": Ids(5, values=4, is_history=True, shares="x")}
    if model["kind"] in IMAGE_KINDS:
        features = {"photo": Dense(32 * 32 * 3, image=(32, 32, 3))}
    inputs = Inputs(features)
    random = np.random.default_rng(0)
    rows: dict[str, Any] = {
        name: tf.constant(random.integers(0, ids.cardinality, (_ROWS, ids.values) if ids.values > 1 else _ROWS))
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        shape = (_ROWS, numbers.width) if numbers.width > 1 else (_ROWS,)
        rows[name] = tf.constant(random.random(shape).astype(np.float32))
    label = tf.constant(random.integers(0, 2, (_ROWS, 1)).astype(np.float32))
    with distribution.scope():
        network = build(ModelConfig.model_validate(model), inputs, 1)
        optimizer = training_loop._create_optimizer(config)
        optimizer.build(network.trainable_variables)
    compute = create_gradient_function(network, optimizer, Head(), 2)  # type: ignore[arg-type]
    step = training_loop._create_replica_step(network, optimizer, compute)
    together = tf.function(lambda: distribution.strategy.run(step, args=((rows, label),)), autograph=False)
    return {
        "losses": [float(together()) for _ in range(STEPS)],
        "variables": sorted({variable.dtype.name for variable in network.variables if variable.dtype.is_floating}),
        "logits": network.output.dtype.name if hasattr(network.output.dtype, "name") else str(network.output.dtype),
        "layers": sorted({layer.compute_dtype for layer in network.layers}),
    }
