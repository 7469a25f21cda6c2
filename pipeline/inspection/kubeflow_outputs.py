"""Describes the outputs of a node to Kubeflow Pipelines, so that its page shows metrics, curves and the report.

Kubeflow's launcher passes the command of a container an *executor input*, which names the artifacts that the task has
declared, and afterwards reads the file *executor output* with their locations and metadata. Models and examples stay
where this project has written them: the launcher does not upload a path that is not in Kubeflow's object store.

Source: `ExecutorInput` and `ExecutorOutput` in api/v2alpha1/pipeline_spec.proto of kubeflow/pipelines; the metadata of
metrics is what kfp.dsl.ClassificationMetrics writes.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from components.base.errors import InputError
from components.base.files import write_atomically
from components.evaluator import plot_data
from components.evaluator.plot_data import Bucket, Confusion
from components.features import graph_files
from pipeline.core.kubeflow_artifacts import CLASSIFICATION, DATASET, HTML, METRICS, MODEL
from pipeline.core.metadata.store import Artifact, Store
from pipeline.inspection import run_summary

_MAX_POINTS = 200
"""Maximum number of points of a ROC curve: Kubeflow keeps them in a metadata store."""
_MOUNTS = re.compile(r"^(gs|minio|s3)://")
_FOLDERS = {"gs": "/gcs/", "minio": "/minio/", "s3": "/s3/"}
"""Scheme of an object store → folder in the container from which Kubeflow's launcher uploads files."""


@dataclass(frozen=True)
class Description:
    """What Kubeflow records about an artifact.

    Attributes:
      uri: Location of the artifact; None if it is at the location that Kubeflow has chosen, or has only metadata.
      metadata: Values that Kubeflow shows.
    """

    uri: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def write(store: Store, run: str, report: Path, executor_input: str) -> None:
    """Write the executor output of a finished node, and copy the report to where Kubeflow uploads it from.

    Args:
      store: The store that holds the run.
      run: ID of the run.
      report: The run's report; it may be missing.
      executor_input: The executor input, as JSON.

    Raises:
      InputError: The executor input is not what Kubeflow passes.
    """
    try:
        outputs = json.loads(executor_input)["outputs"]
        artifacts = {name: declared["artifacts"][0] for name, declared in outputs.get("artifacts", {}).items()}
        types = {name: artifact["type"]["schemaTitle"] for name, artifact in artifacts.items()}
        file = Path(outputs["outputFile"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"--executor-input: expected Kubeflow's executor input, received {executor_input[:200]}",
            "pass {{$}} in a pipeline for Kubeflow, and leave the option out elsewhere",
        ) from error
    described = {}
    for name, artifact in artifacts.items():
        if types[name] == HTML:
            _copy(report, artifact["uri"])
            continue
        description = _describe(store, run, name, types[name])
        if description is not None:
            uri = {"uri": description.uri} if description.uri else {}
            described[name] = {"artifacts": [{"name": artifact["name"], **uri, "metadata": description.metadata}]}
    write_atomically(file, json.dumps({"artifacts": described}, allow_nan=False))


def _copy(report: Path, uri: str) -> None:
    target = Path(_MOUNTS.sub(lambda scheme: _FOLDERS[scheme[1]], uri))
    if report.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(report, target)


def _describe(store: Store, run: str, name: str, type_: str) -> Description | None:
    """Return the description of an artifact; None if the node has not written it, for example if nothing was pushed."""
    if type_ == DATASET:
        return _describe_examples(store, run)
    if type_ == METRICS:
        return Description(metadata=_select_finite(run_summary.summarize(store, run).metrics))
    if type_ == CLASSIFICATION:
        return _describe_classification(store, run)
    if type_ == MODEL:
        return _describe_push(store, run) if name == "pushed_model" else _describe_model(store, run)
    return None


def _describe_examples(store: Store, run: str) -> Description | None:
    examples = next(iter(store.artifacts(run, "Examples")), None)
    if examples is None:
        return None
    summary = run_summary.summarize(store, run)
    values = {"span": examples.properties.get("span"), "rows_read": summary.rows_read}
    values |= {f"rows_{split}": count for split, count in summary.rows.items()}
    return Description(examples.uri, {name: value for name, value in values.items() if value is not None})


def _describe_model(store: Store, run: str) -> Description | None:
    model = _find_last(store.artifacts(run, "Model"))
    return Description(model.uri, {"framework": "TensorFlow"}) if model else None


def _describe_push(store: Store, run: str) -> Description | None:
    summary = run_summary.summarize(store, run)
    if summary.pushed is None:
        return None
    version = {"version": summary.pushed_version} if summary.pushed_version else {}
    return Description(summary.pushed, {"framework": "TensorFlow", **version})


def _describe_classification(store: Store, run: str) -> Description | None:
    evaluation = _find_last(store.artifacts(run, "ModelEvaluation"))
    plots = run_summary.read_plots(evaluation.uri) if evaluation else None
    if plots is None:
        return None
    graph = _find_last(store.artifacts(run, "TransformGraph"))
    classes = graph_files.read_label_classes(graph.uri) if graph else []
    model = plots.candidate
    if plots.task == "binary" and model.predictions:
        matrix = _make_matrix(plot_data.at_threshold(model.predictions, model.at), classes)
        return Description(metadata={"confidenceMetrics": make_roc(model.predictions), "confusionMatrix": matrix})
    return Description(metadata={"confusionMatrix": _make_matrix(model.confusion, classes)} if model.confusion else {})


def make_roc(buckets: Sequence[Bucket]) -> list[dict[str, float]]:
    """Return the ROC curve in the format of kfp.dsl.ClassificationMetrics, from the highest threshold to the lowest.

    Args:
      buckets: Rows by prediction, ascending.

    Returns:
      At most about 200 points; none if all labels are equal.
    """
    points = plot_data.roc(buckets)
    if not points:
        return []
    # The first point has no row above its threshold; Kubeflow's JSON cannot hold an infinite threshold.
    thresholds = [max(1.0, buckets[-1].high), *(bucket.low for bucket in reversed(buckets))]
    chosen = np.unique(np.linspace(0, len(points) - 1, min(len(points), _MAX_POINTS)).round().astype(int))
    return [
        {
            "confidenceThreshold": float(thresholds[index]),
            "recall": points[index][1],
            "falsePositiveRate": points[index][0],
        }
        for index in chosen
    ]


def _make_matrix(confusion: Confusion, classes: Sequence[str]) -> dict[str, Any]:
    names = [classes[number] if 0 <= number < len(classes) else str(number) for number in confusion.classes]
    if confusion.others:
        names.append(f"{confusion.others} others")
    return {
        "annotationSpecs": [{"displayName": name} for name in names],
        "rows": [{"row": list(row)} for row in confusion.counts],
    }


def _select_finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _find_last(artifacts: Iterable[Artifact]) -> Artifact | None:
    return next(reversed(list(artifacts)), None)
