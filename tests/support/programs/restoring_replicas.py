"""Two synchronous replicas that restore a step each, and compare them."""

from __future__ import annotations

import functools
from pathlib import Path

from components.trainer import strategy
from components.trainer.cluster import tf_config
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig


def main(folder: Path, steps: tuple[int, int]) -> int:
    """Run the replicas as a cluster; return the number of restarts.

    Args:
      folder: Folder for their logs.
      steps: Step that each replica restores at its first start; after a restart both restore the first of them.
    """
    config = TrainingConfig.model_validate({"strategy": {"kind": "multi_worker", "workers": 2}})
    return Supervisor(config, functools.partial(_compare, folder, config, steps), folder / "logs").run().restarts


def _compare(folder: Path, config: TrainingConfig, steps: tuple[int, int], role: Role) -> None:
    started = folder / f"{role.name}.started"
    step = steps[0] if started.exists() else steps[role.index]
    started.touch()
    strategy.prepare(role, config)
    distribution = strategy.distribute(config, tf_config.role())
    distribution.check_agreement(step)
    strategy.wait_for_all_replicas(distribution.strategy)
