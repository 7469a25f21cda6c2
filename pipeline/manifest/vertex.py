"""A CustomJob for Vertex AI, as its REST API takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.manifest.tasks import command, name_of, tasks

if TYPE_CHECKING:
    from pipeline.config import Config

_POOLS = ("chief", "worker", "ps", "evaluator")
"""What the first to fourth pool is for; Vertex AI goes by the place alone."""
_MACHINE = "n1-standard-8"


def manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The CustomJob that trains a config's model; Vertex AI adds TF_CONFIG to each task.

    The first pool has one task, the chief: of workers in step it is the first. A pool that is not needed is empty, and
    those behind the last needed one are left out.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: Vertex AI is not asked for the strategy.
    """
    counts = tasks(config.training)
    if "chief" not in counts:
        counts = {**counts, "chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(counts.get(role, 0), image, job) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return {
        "displayName": name_of(config),
        "jobSpec": {
            "workerPoolSpecs": pools,
            # Workers in step go on only all together; beside parameter servers a worker may come back alone.
            "scheduling": {"restartJobOnWorkerRestart": config.training.strategy.kind == "multi_worker"},
        },
    }


def _pool(count: int, image: str, job: str) -> dict[str, Any]:
    if not count:
        return {}
    return {
        "machineSpec": {"machineType": _MACHINE},
        "replicaCount": count,
        "containerSpec": {"imageUri": image, "command": command(job)},
    }
