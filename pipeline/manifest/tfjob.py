"""A TFJob (kubeflow.org/v1) for clusters with Kubeflow's training operator, release 1.x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.manifest.tasks import CONTAINER, PORT, command, name_of, tasks

if TYPE_CHECKING:
    from pipeline.config import Config

_REPLICA = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The TFJob that trains a config's model; the operator adds TF_CONFIG to each task.

    A task that ends with a code of 128 or more (a signal took it) is started anew; a smaller one ends the job.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: a TFJob does not know the strategy.
    """
    counts = tasks(config.training)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name_of(config)},
        "spec": {
            # With a chief the job is done when the chief is, which is what "" stands for.
            "successPolicy": "" if "chief" in counts else "AllWorkers",
            # What still runs then, such as a ps, is stopped; what has ended stays for its log.
            "runPolicy": {"backoffLimit": config.training.max_restarts, "cleanPodPolicy": "Running"},
            "tfReplicaSpecs": {_REPLICA[role]: _replicas(count, image, job) for role, count in counts.items()},
        },
    }


def _replicas(count: int, image: str, job: str) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": image,
        "command": command(job),
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
    }
    return {
        "replicas": count,
        "restartPolicy": "ExitCode",
        "template": {"spec": {"containers": [container]}},
    }
