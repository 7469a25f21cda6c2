"""The baseline is the latest blessed model, and never the candidate itself."""

from __future__ import annotations

from typing import Any

import pytest
from tfx.types.standard_artifacts import Model, ModelBlessing

from components.evaluator.baseline import LatestOtherBlessedModel


def model(number: int) -> Any:
    made = Model()
    made.id = number
    return made


def blessing(of: int, blessed: int) -> Any:
    made = ModelBlessing()
    made.set_int_custom_property("current_model_id", of)
    made.set_int_custom_property("blessed", blessed)
    return made


@pytest.mark.parametrize(
    ("blessed", "candidate", "baseline"),
    [
        pytest.param({}, 1, [], id="the-first-model-has-none"),
        pytest.param({1: 1}, 1, [], id="nor-has-it-in-a-second-run"),
        pytest.param({1: 1}, 2, [1], id="another-one-is-compared-with-it"),
        pytest.param({1: 1, 2: 1}, 2, [1], id="also-when-it-is-blessed-itself"),
        pytest.param({1: 1, 2: 1, 3: 0}, 4, [2], id="the-latest-of-the-blessed-ones"),
        pytest.param({1: 1, 2: 1}, 1, [2], id="an-old-model-again"),
    ],
)
def test_the_baseline(blessed: dict[int, int], candidate: int, baseline: list[int]):
    models = {number: model(number) for number in {*blessed, candidate}}
    given = {
        "model": list(models.values()),
        "model_blessing": [blessing(number, yes) for number, yes in blessed.items()],
        "candidate": [models[candidate]],
    }
    found = LatestOtherBlessedModel().resolve_artifacts(None, given)
    assert [each.id for each in found["model"]] == baseline
    assert [each.get_int_custom_property("current_model_id") for each in found["model_blessing"]] == baseline
    assert found["candidate"] == [models[candidate]]
