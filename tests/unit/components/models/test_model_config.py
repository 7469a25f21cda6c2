"""The `model` section: a network of ours, or a run_fn of the user's, and never half of each."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.models.config import ModelConfig


def test_a_run_fn_leaves_nothing_else_to_choose():
    with pytest.raises(ValidationError, match="so hidden, kind would have no effect"):
        ModelConfig.model_validate({"run_fn": "mine.run_fn", "hidden": [8], "kind": "mlp"})


@pytest.mark.parametrize("section", [{"run_fn": "mine.run_fn"}, {"kind": "mlp", "hidden": [8]}])
def test_what_is_recorded_can_be_read_again(section: dict[str, object]):
    config = ModelConfig.model_validate(section)
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config
