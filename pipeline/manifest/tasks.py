"""The tasks that a config asks of a cluster, and what all manifests say of them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.errors import InputError

if TYPE_CHECKING:
    from components.trainer.config import TrainingConfig
    from pipeline.config import Config

CONTAINER = "tensorflow"
"""The container's name: the training operator puts TF_CONFIG only into one that is called so."""
PORT = 2222

_MOST_LETTERS = 40


def tasks(training: TrainingConfig) -> dict[str, int]:
    """The tasks by role (chief, worker, ps, evaluator, in this order) and how many of each.

    Raises:
      InputError: the strategy is one that no manifest is written for.
    """
    strategy = training.strategy
    if strategy.kind == "tpu":
        raise InputError(
            "training.strategy.kind: a manifest asks for no TPU; expected another strategy, received tpu",
            "run `python runner.py --local` on a TPU VM, or choose mirrored, multi_worker or parameter_server",
        )
    if not strategy.is_cluster:
        return {"worker": 1}
    if strategy.kind == "parameter_server":
        counts = {"chief": 1, "worker": strategy.workers, "ps": strategy.ps}
    else:
        counts = {"worker": strategy.workers}
    return {**counts, "evaluator": 1} if training.evaluator else counts


def command(job: str) -> list[str]:
    """What every task runs; it learns from TF_CONFIG which one it is.

    Args:
      job: path or URI of the job file.
    """
    return ["python", "-m", "components.trainer.member", job]


def name_of(config: Config) -> str:
    """The job's name: small letters, digits and -, short enough for what is put behind it in the tasks' host names."""
    return f"train-{config.pipeline.name}".replace("_", "-")[:_MOST_LETTERS].rstrip("-")
