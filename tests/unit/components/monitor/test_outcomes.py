"""Tests that Monitor measures every label under its own names and with its own bounds."""

from __future__ import annotations

import pytest

from components.evaluator.eval_config import eval_config
from components.evaluator.plan import EvaluationPlan
from components.features.expression import Label
from components.ingest.config import DataConfig
from components.monitor.config import MonitorConfig
from components.monitor.outcomes import Outcomes
from components.monitor.plan import MonitorPlan

CLICK, PURCHASE = Label("clicked", "click"), Label("paid > 0", "purchase")
SINGLE = Label("clicked")


def plan(*labels: Label) -> MonitorPlan:
    bounds = {"auc": {"min": 0.6}, "calibration": {"min": 0.6}}
    if len(labels) > 1:
        bounds["purchase/auc"] = {"min": 0.7}
    evaluation = {
        "evaluation": {"thresholds": {"auc": {"min": 0.6}}},
        "task": "binary",
        "labels": labels,
        "preprocessing": ["transform_labels"],
        "prediction_key": "probability",
    }
    return MonitorPlan(
        monitor=MonitorConfig.model_validate({"labels": "later.csv", "key": "id", "thresholds": bounds}),
        evaluation=EvaluationPlan.model_validate(evaluation),
        labels=DataConfig(label="clicked", path=("later.csv",)),
    )


@pytest.mark.parametrize(
    ("labels", "label", "suffix", "auc", "folder"),
    [
        ((CLICK, PURCHASE), CLICK, "_click", 0.6, "evaluation"),
        ((CLICK, PURCHASE), PURCHASE, "_purchase", 0.7, "evaluation/purchase"),
        ((SINGLE,), SINGLE, "", 0.6, "evaluation"),
    ],
)
def test_label_has_its_names_and_bounds(
    labels: tuple[Label, ...], label: Label, suffix: str, auc: float, folder: str
) -> None:
    whole = plan(*labels)
    (spec,) = eval_config(whole.evaluation, label).model_specs
    assert (spec.label_key, spec.prediction_key) == (f"label{suffix}", f"probability{suffix}")
    assert whole.evaluation.find_folder(label, "evaluation") == folder
    bounds = Outcomes(whole, label)._bounds().thresholds
    assert {name: bound.min for name, bound in bounds.items()} == {"auc": auc, "calibration": 0.6}
