"""The artifacts of a node that Kubeflow Pipelines shows, by their types in Kubeflow: what a pipeline declares."""

from __future__ import annotations

DATASET, MODEL, METRICS = "system.Dataset", "system.Model", "system.Metrics"
CLASSIFICATION, HTML = "system.ClassificationMetrics", "system.HTML"
VERSION = "0.0.1"
"""Version of the types."""

_ARTIFACTS = {
    "ExampleGen": {"examples": DATASET},
    "Trainer": {"model": MODEL},
    "Evaluator": {"metrics": METRICS, "classification": CLASSIFICATION, "report": HTML},
    "Pusher": {"pushed_model": MODEL, "report": HTML},
}


def list_artifacts(node: str, classifies: bool) -> dict[str, str]:
    """Return name → type of the artifacts that Kubeflow shows of a node.

    Args:
      node: ID of the node.
      classifies: Whether the task of the pipeline has a confusion matrix: binary or multiclass, with one label.
    """
    artifacts = _ARTIFACTS.get(node, {})
    return {name: type_ for name, type_ in artifacts.items() if classifies or type_ != CLASSIFICATION}
