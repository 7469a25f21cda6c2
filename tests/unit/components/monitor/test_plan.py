"""Tests that a plan of Monitor with several labels is split into one plan per label."""

from __future__ import annotations

from components.evaluator.plan import EvaluationPlan
from components.monitor.config import MonitorConfig
from components.monitor.plan import MonitorPlan

LABELS = {"click": "clicked", "purchase": "paid > 0"}
BOUND, OTHER = {"min": 0.6}, {"min": 0.7}


def plan(labels: dict[str, str]) -> MonitorPlan:
    first = f"_{next(iter(labels))}" if labels else ""
    section = {"labels": "later.csv", "key": "id", "thresholds": {"auc": BOUND, "calibration": BOUND}}
    if labels:
        section["thresholds"] |= {"purchase/auc": OTHER}
    evaluation = {
        "evaluation": {"thresholds": {"auc": BOUND}},
        "task": "binary",
        "label": "" if labels else "clicked",
        "labels": labels,
    }
    return MonitorPlan(
        monitor=MonitorConfig.model_validate(section),
        evaluation=EvaluationPlan.model_validate(evaluation),
        label_key=f"label{first}",
        preprocessing=("transform_labels",),
        prediction_key=f"probability{first}",
    )


def test_plan_of_a_label_has_its_names_and_bounds() -> None:
    click, purchase = plan(LABELS).split_by_label()
    assert (click.label_key, click.prediction_key) == ("label_click", "probability_click")
    assert (purchase.label_key, purchase.prediction_key) == ("label_purchase", "probability_purchase")
    assert [label_plan.evaluation.label for label_plan in (click, purchase)] == list(LABELS.values())
    assert {name: bound.min for name, bound in click.monitor.thresholds.items()} == {"auc": 0.6, "calibration": 0.6}
    assert {name: bound.min for name, bound in purchase.monitor.thresholds.items()} == {"auc": 0.7, "calibration": 0.6}
    assert plan(LABELS).evaluation.folders("evaluation") == ("evaluation", "evaluation/purchase")


def test_plan_of_a_single_label_is_not_changed() -> None:
    whole = plan({})
    assert whole.split_by_label() == (whole,)
    assert whole.evaluation.folders("evaluation") == ("evaluation",)
