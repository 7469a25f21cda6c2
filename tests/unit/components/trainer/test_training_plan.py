"""Tests that the values of a Tuner replace the values of the plan, and are validated like the config."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.trainer.plan import TrainingPlan

PLAN = TrainingPlan.model_validate(
    {
        "features": {"features": {"columns": {"fare": "z_score"}}, "labels": [{"text": "tips > 1"}], "task": "binary"},
        "model": {"kind": "mlp", "hidden": [8]},
        "training": {"steps": 7, "batch_size": 32},
    }
)


def test_with_values_replaces_the_fields_with_these_names() -> None:
    plan = PLAN.with_values({"learning_rate": 0.5, "hidden": "[3, 2]", "dropout": 0.1})
    assert (plan.training.learning_rate, plan.training.batch_size, plan.training.steps) == (0.5, 32, 7)
    assert (plan.model.hidden, plan.model.dropout, plan.model.kind) == ((3, 2), 0.1, "mlp")
    assert plan.features == PLAN.features
    assert PLAN.with_values({}) == PLAN
    assert PLAN.with_values({"hidden": [3]}).model.hidden == (3,)


@pytest.mark.parametrize("values", [{"learning_rate": -1}, {"hidden": "[]"}, {"layers": 3}])
def test_invalid_value_or_unknown_field_is_rejected(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PLAN.with_values(values)
