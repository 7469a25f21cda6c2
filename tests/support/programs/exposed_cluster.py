"""Which tasks of a training cluster can be reached from another machine; imports TensorFlow."""

from __future__ import annotations

import functools
import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer import run_fn, strategy
from components.trainer.cluster import tf_config
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.task_server import serve
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.plan import TrainingPlan
from tests.support.servers.another_machine import AnotherMachine

_PATIENCE_SECONDS = 60.0


def main(folder: Path, training: dict[str, Any], calls_run_fn: bool) -> dict[str, list[str]]:
    """Run a cluster whose lead connects to all tasks.

    Args:
      folder: For the logs and the results.
      training: The section of the config.
      calls_run_fn: Whether the tasks call a run_fn of the user, which creates the strategy.

    Returns:
      Task → the results of connecting to 127.0.0.1, to ::1, and from another machine.
    """
    config = TrainingConfig.model_validate(training)
    Supervisor(config, functools.partial(_run_task, folder, config, calls_run_fn), folder / "logs").run()
    results: dict[str, list[str]] = json.loads((folder / "results.json").read_text())
    return results


def own_run_fn(fn_args: Any) -> None:
    """Create the strategy, and stay in it until no task can be reached from another machine."""
    created = tf.distribute.MultiWorkerMirroredStrategy()
    _connect_to_all(Path(fn_args.model_run_dir), created, patience=_PATIENCE_SECONDS)
    Path(fn_args.serving_model_dir, "saved_model.pb").touch()


def _run_task(folder: Path, config: TrainingConfig, calls_run_fn: bool, role: Role) -> None:
    if role.is_server:
        serve(role, folder / role.name)
    if calls_run_fn:
        features = FeaturePlan(features=FeaturesConfig(columns={"x": "z_score"}), labels=(Label("y"),), task="binary")
        model = ModelConfig(run_fn=f"{__name__}.{own_run_fn.__name__}")
        plan = TrainingPlan(features=features, model=model, training=config).model_dump_json()
        paths = {"model_run_dir": str(folder), "serving_model_dir": str(folder)}
        run_fn.run_fn(SimpleNamespace(custom_config={"plan": plan}, **paths))  # type: ignore[arg-type]
    else:
        strategy.prepare(role, config)
        _connect_to_all(folder, strategy.distribute(config, role).strategy, patience=0.0)


def _connect_to_all(folder: Path, created: tf.distribute.Strategy, patience: float) -> None:
    """In the lead, connect to all tasks; the others wait for it.

    Args:
      folder: For the results.
      created: The strategy of this process.
      patience: Seconds until the sockets must be limited.
    """
    role = tf_config.role()
    assert role is not None
    if not role.cluster.get("ps"):
        strategy.wait_for_all_replicas(created)
    if role.is_lead:
        with AnotherMachine() as machine:
            deadline = time.monotonic() + patience
            tasks = {
                f"{kind}-{index}": int(address.rpartition(":")[2])
                for kind, addresses in role.cluster.items()
                for index, address in enumerate(addresses)
            }
            while True:
                results = {name: _connect(machine, port) for name, port in tasks.items()}
                if time.monotonic() > deadline or not any("connected" in result[2:] for result in results.values()):
                    break
                time.sleep(0.1)
        (folder / "results.json").write_text(json.dumps(results))
    if not role.cluster.get("ps"):
        strategy.wait_for_all_replicas(created)


def _connect(machine: AnotherMachine, port: int) -> list[str]:
    for host in ("127.0.0.1", "::1"):
        socket.create_connection((host, port), 10).close()
    return ["connected", "connected", *(machine.connect(host, port) for host in machine.hosts)]
