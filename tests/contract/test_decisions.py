"""A network and trees answer as their threshold says, and the Evaluator judges these answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from components.evaluator.plot_data import Plots, at_threshold
from components.evaluator.verdict import SliceMetrics, Verdict
from components.results.decision import FILE, Decisions
from tests.support.data import people
from tests.support.data.tolerances import Tolerance
from tests.support.runs import trainer_runs
from tests.support.runs.command import Ended, command
from tests.support.servers.in_fork_server import in_child

pytestmark = pytest.mark.extended

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp", "hidden": [8]},
    "gbt": {"kind": "gbt", "trees": 20, "depth": 3},
}
COSTS = {"fp": 1, "fn": 8}
NEAR = Tolerance(1e-5, 1e-6)
"""The Evaluator adds up rows in another order than scikit-learn."""


def run(folder: Path, model: dict[str, Any], decide: Any) -> Ended:
    """Run the pipeline on 2,000 people with weights that depend on the label."""
    random = np.random.default_rng(3)
    table = [
        {**row, "weight": float(random.choice([0.5, 1.0, 3.0])) * (2 if row["income"] == ">50K" else 1)}
        for row in people.rows(2000)
    ]
    evaluation = {"metrics": ["auc", "binary_accuracy"], "slices": ["city"], "thresholds": {"auc": {"min": 0.6}}}
    # What is not tested here takes time.
    evaluation |= {"importance_rows": 0, "linear_model_rows": 0}
    config = people.write_config(
        folder / "people.yaml",
        people.write(folder / "people.csv", table),
        data={**people.CONFIG["data"], "weight": "weight"},
        model=model,
        training={**people.CONFIG["training"], "steps": 100, "checkpoint": {"every_steps": 50}},
        evaluation={**evaluation, "decide": decide, "fairness": {"column": "city"}},
    )
    ended = command("--local", "--json", "--config", str(config), "--output", str(folder))
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.out or ended.err
    return ended


def read_answers(examples: str, model: str) -> dict[str, Any]:
    """Return labels, weights, cities and the answers of two signatures for the eval split; in a child."""
    import tensorflow as tf

    rows = tf.constant(trainer_runs.eval_examples(examples))
    signatures = tf.saved_model.load(model).signatures
    specs = {"weight": tf.io.FixedLenFeature([], tf.float32), "city": tf.io.FixedLenFeature([], tf.string, "")}
    columns = {name: values.numpy() for name, values in tf.io.parse_example(rows, specs).items()}
    (label,) = signatures["transform_labels"](examples=rows).values()
    served = {name: values.numpy()[:, 0] for name, values in signatures["serving_default"](examples=rows).items()}
    raw = signatures["raw"]
    inputs = {
        "age": tf.constant([np.nan, 25.5, 40.5, 66.5], tf.float32),
        "hours": tf.constant([20, 30, 50, 59], tf.int64),
        "city": tf.constant(["Paris", "", "Paris", "other"]),
    }
    by_column = {name: values.numpy()[:, 0] for name, values in raw(**inputs).items()}
    transformed = sorted(signatures["transformed"].structured_outputs)
    return {**columns, "label": label.numpy().ravel(), "served": served, "raw": by_column, "transformed": transformed}


def look(folder: Path, ended: Ended) -> tuple[Verdict, Plots, Decisions, dict[str, Any]]:
    """Return the verdict, the charts and the decisions of a run, and the answers of its pushed model."""
    artifacts, pushed = folder / "people" / "artifacts", Path(ended.result["pushed"])
    evaluation = max((artifacts / "Evaluator" / "evaluation").iterdir(), key=lambda path: int(path.name))
    examples = max((artifacts / "ExampleGen" / "examples").iterdir(), key=lambda path: int(path.name))
    answers = in_child(folder / "look.log", read_answers, str(examples), str(pushed))
    return (
        Verdict.from_json((evaluation / "verdict.json").read_text()),
        Plots.from_json((evaluation / "plots.json").read_text()),
        Decisions.from_json((pushed / FILE).read_text()),
        answers,
    )


def measure(answers: dict[str, Any], threshold: float, rows: Any, costs: Any) -> dict[str, float]:
    """Return scikit-learn's metrics of the decisions of some rows, and their mean cost."""
    label, weight = answers["label"][rows] == 1, answers["weight"][rows]
    decided = answers["served"]["probability"][rows] >= np.float32(threshold)
    values = {
        "binary_accuracy": metrics.accuracy_score(label, decided, sample_weight=weight),
        "precision": metrics.precision_score(label, decided, sample_weight=weight),
        "recall": metrics.recall_score(label, decided, sample_weight=weight),
        "f1": metrics.f1_score(label, decided, sample_weight=weight),
        "positive_rate": np.average(decided, weights=weight),
        "false_positive_rate": np.average(decided[~label], weights=weight[~label]),
        "false_negative_rate": np.average(~decided[label], weights=weight[label]),
    }
    if costs:
        wrong = np.where(label, costs["fn"] * ~decided, costs["fp"] * decided)
        values["cost"] = float(np.average(wrong, weights=weight))
    return values


def check_answers(decisions: Decisions, answers: dict[str, Any]) -> float:
    """Check that both signatures answer 1 exactly from the threshold on; return the threshold."""
    threshold = decisions.labels[""].threshold
    for outputs in (answers["served"], answers["raw"]):
        assert outputs.keys() == {"class", "probability"}
        assert outputs["class"].dtype == np.int64
        np.testing.assert_array_equal(outputs["class"], outputs["probability"] >= np.float32(threshold))
    assert set(answers["served"]["class"]) == {0, 1}
    # Devices get the probability, and the threshold in the metadata of the file.
    assert answers["transformed"] == ["probability"]
    return float(threshold)


def check_metrics(verdict: Verdict, answers: dict[str, Any], threshold: float, costs: Any) -> None:
    """Check the metrics of the whole split and of every slice."""
    assert len(verdict.slices) >= 4
    for entry in verdict.slices:
        assert isinstance(entry, SliceMetrics)
        rows = np.ones(len(answers["label"]), bool)
        if entry.slice:
            rows = answers["city"] == entry.slice["city"].encode()
        assert entry.rows == rows.sum()
        expected = measure(answers, threshold, rows, costs)
        assert {name: entry.metrics[name] for name in expected} == NEAR.approx(expected), entry.slice
        assert all(low <= entry.metrics[name] <= high for name, (low, high) in entry.intervals.items()), entry.slice


@pytest.mark.parametrize("kind", MODELS)
def test_model_and_evaluator_agree_on_the_threshold(kind: str, tmp_path: Path) -> None:
    ended = run(tmp_path, MODELS[kind], {"cost": COSTS})
    verdict, plots, decisions, answers = look(tmp_path, ended)
    threshold = check_answers(decisions, answers)
    assert threshold != 0.5
    chosen = decisions.labels[""]
    assert verdict.decisions == decisions.labels
    assert (chosen.goal, chosen.positives < chosen.rows) == ("lowest mean cost with fp 1 and fn 8", True)
    check_metrics(verdict, answers, threshold, COSTS)
    # The metrics of the validation rows are about those of the eval split.
    whole = verdict.slices[0]
    assert all(abs(whole.metrics[name] - chosen.metrics[name]) < 0.25 for name in ("precision", "recall", "f1"))
    prior = float(np.average(answers["label"], weights=answers["weight"]))
    assert whole.constant["cost"].value == NEAR.approx(min(1 - prior, 8 * prior))
    assert plots.candidate.at == threshold
    drawn = np.array(at_threshold(plots.candidate.predictions, plots.candidate.at).counts)
    expected = metrics.confusion_matrix(answers["label"], answers["served"]["class"], sample_weight=answers["weight"])
    NEAR.assert_close(drawn, expected)
    assert ended.result["decisions"][""]["threshold"] == threshold
    assert "cost" in ended.result["metrics"]
