"""Tests for the description of a node's outputs to Kubeflow Pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import auc, confusion_matrix, roc_auc_score

from components.base.errors import InputError
from components.evaluator.plot_data import Bucket, ModelPlots, Plots
from pipeline.core.kubeflow_artifacts import list_artifacts
from pipeline.core.metadata.store import Store
from pipeline.inspection import kubeflow_outputs
from tests.support.runs import report_runs


def make_input(node: str, folder: Path) -> str:
    """Return the executor input that Kubeflow passes to a node."""
    artifacts = {
        name: {"artifacts": [{"name": name, "type": {"schemaTitle": type_}, "uri": str(folder / node / name)}]}
        for name, type_ in list_artifacts(node, classifies=True).items()
    }
    return json.dumps({"inputs": {}, "outputs": {"artifacts": artifacts, "outputFile": str(folder / node / "output")}})


def describe(folder: Path, node: str) -> dict[str, dict[str, Any]]:
    """Write the executor output of a node of the run in this folder; return its artifacts by name."""
    report = folder / "report.html"
    report.write_text("the report")
    kubeflow_outputs.write(Store(folder / "metadata.db"), "r1", report, make_input(node, folder))
    output = json.loads((folder / node / "output").read_text())
    return {name: artifacts["artifacts"][0] for name, artifacts in output["artifacts"].items()}


def test_curve_and_matrix_are_those_of_the_predictions(tmp_path: Path) -> None:
    report_runs.write_run(tmp_path)
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 2000)
    scores = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), 0, 0.999).round(3)
    buckets = []
    for score in np.unique(scores).tolist():
        labels_of_bucket = labels[scores == score]
        rows = len(labels_of_bucket)
        buckets.append(Bucket(score, score + 0.001, rows, float(labels_of_bucket.sum()), score * rows))
    plots = Plots("binary", ModelPlots(tuple(buckets), at=0.55), None)
    (tmp_path / "r1/evaluation/plots.json").write_text(plots.to_json())
    described = describe(tmp_path, "Evaluator")
    assert described["metrics"]["metadata"] == {"auc": 0.75, "loss": 0.25}
    classification = described["classification"]["metadata"]
    curve = classification["confidenceMetrics"]
    assert 190 <= len(curve) <= 200
    x, y = ([point[name] for point in curve] for name in ("falsePositiveRate", "recall"))
    assert auc(x, y) == pytest.approx(roc_auc_score(labels, scores), abs=1e-3)
    for point in curve[1:]:
        predicted = scores >= point["confidenceThreshold"]
        assert point["recall"] == pytest.approx(predicted[labels == 1].mean(), abs=1e-9)
        assert point["falsePositiveRate"] == pytest.approx(predicted[labels == 0].mean(), abs=1e-9)
    matrix = [row["row"] for row in classification["confusionMatrix"]["rows"]]
    assert matrix == confusion_matrix(labels, scores >= 0.55).tolist()
    assert len(classification["confusionMatrix"]["annotationSpecs"]) == 2


def test_matrix_of_many_classes_has_a_name_for_each_row(tmp_path: Path) -> None:
    report_runs.write_run(tmp_path, task="multiclass", classes=3)
    classification = describe(tmp_path, "Evaluator")["classification"]["metadata"]
    assert set(classification) == {"confusionMatrix"}
    names = [name["displayName"] for name in classification["confusionMatrix"]["annotationSpecs"]]
    assert len(names) == len(classification["confusionMatrix"]["rows"]) == 4
    assert names[-1] == "1000 others"


def test_models_and_examples_stay_where_they_are(tmp_path: Path) -> None:
    writer = report_runs.write_run(tmp_path)
    [examples] = describe(tmp_path, "ExampleGen").values()
    assert (examples["uri"], examples["metadata"]["rows_train"]) == (str(tmp_path / "r1/e"), 8)
    [model] = describe(tmp_path, "Trainer").values()
    assert (model["uri"], model["metadata"]) == (str(tmp_path / "r1/model"), {"framework": "TensorFlow"})
    # Before a push, there is only the report.
    assert describe(tmp_path, "Pusher") == {}
    assert (tmp_path / "Pusher/report").read_text() == "the report"
    pushed = writer.artifact("PushedModel", pushed=1, pushed_destination="/pushed/7", pushed_version="7")
    writer.execution("r1", "Pusher", outputs=(pushed,))
    [model] = describe(tmp_path, "Pusher").values()
    assert (model["uri"], model["metadata"]) == ("/pushed/7", {"framework": "TensorFlow", "version": "7"})


def test_other_text_is_rejected(tmp_path: Path) -> None:
    report_runs.write_run(tmp_path)
    for text in ("{{$}}", "{}", '{"outputs": {"artifacts": {"a": {"artifacts": []}}, "outputFile": "f"}}'):
        with pytest.raises(InputError, match="expected Kubeflow's executor input, received"):
            kubeflow_outputs.write(Store(tmp_path / "metadata.db"), "r1", tmp_path / "none", text)
