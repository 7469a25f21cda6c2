"""A Tuner's values replace the plan's, and are held against its fields as the config's are."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.trainer.plan import TrainingPlan

PLAN = TrainingPlan.model_validate(
    {
        "features": {"features": {"columns": {"fare": "z_score"}}, "label": "tips > 1", "task": "binary"},
        "model": {"kind": "mlp", "hidden": [8]},
        "training": {"steps": 7, "batch_size": 32},
    }
)


def test_values_go_where_they_belong() -> None:
    found = PLAN.with_values({"learning_rate": 0.5, "hidden": "[3, 2]", "dropout": 0.1})
    assert (found.training.learning_rate, found.training.batch_size, found.training.steps) == (0.5, 32, 7)
    assert (found.model.hidden, found.model.dropout, found.model.kind) == ((3, 2), 0.1, "mlp")
    assert found.features == PLAN.features
    assert PLAN.with_values({}) == PLAN
    assert PLAN.with_values({"hidden": [3]}).model.hidden == (3,)


@pytest.mark.parametrize("values", [{"learning_rate": -1}, {"hidden": "[]"}, {"layers": 3}])
def test_value_of_no_field_is_rejected(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PLAN.with_values(values)
