"""The baseline is the latest blessed model, and never the candidate itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.types.standard_artifacts import Model, ModelBlessing

from components.evaluator.baseline import LatestOtherBlessedModel, baseline, drop_unusable_baseline


def model(number: int) -> Any:
    made = Model()
    made.id = number
    made.uri = f"/models/{number}"
    return made


def blessing(of: int, blessed: int) -> Any:
    made = ModelBlessing()
    made.set_int_custom_property("current_model_id", of)
    made.set_int_custom_property("blessed", blessed)
    return made


@pytest.mark.parametrize(
    ("blessed", "candidate", "expected"),
    [
        pytest.param({}, 1, [], id="the-first-model-has-none"),
        pytest.param({1: 1}, 1, [], id="nor-has-it-in-a-second-run"),
        pytest.param({1: 1}, 2, [1], id="another-one-is-compared-with-it"),
        pytest.param({1: 1, 2: 1}, 2, [1], id="also-when-it-is-blessed-itself"),
        pytest.param({1: 1, 2: 1, 3: 0}, 4, [2], id="the-latest-of-the-blessed-ones"),
        pytest.param({1: 1, 2: 1}, 1, [2], id="an-old-model-again"),
    ],
)
def test_latest_other_one(blessed: dict[int, int], candidate: int, expected: list[int]):
    models = {number: model(number) for number in {*blessed, candidate}}
    given = {
        "model": list(models.values()),
        "model_blessing": [blessing(number, yes) for number, yes in blessed.items()],
        "candidate": [models[candidate]],
    }
    result = LatestOtherBlessedModel().resolve_artifacts(None, given)
    assert [each.id for each in result["model"]] == expected
    assert [each.get_int_custom_property("current_model_id") for each in result["model_blessing"]] == expected
    assert result["candidate"] == [models[candidate]]


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        pytest.param(None, None, id="none-was-looked-up"),
        pytest.param([], None, id="none-was-found"),
        pytest.param([1], None, id="itself-by-tfx-own-strategy"),
        pytest.param([2], [2], id="another-one"),
    ],
)
def test_candidate_is_not_held_against_itself(result: list[int] | None, kept: list[int] | None):
    inputs = {"model": [model(1)], "examples": []}
    given = inputs if result is None else {**inputs, "baseline_model": [model(number) for number in result]}
    left = drop_unusable_baseline(given)
    assert left.keys() == inputs.keys() | ({"baseline_model"} if kept else set())
    assert [each.id for each in left.get("baseline_model", [])] == (kept or [])


def test_without_a_candidate_the_strategy_is_the_only_one_that_vertex_ai_knows():
    node = baseline(None)
    assert (node.id, set(node.inputs)) == ("LatestBlessedModel", {"model", "model_blessing"})
    assert node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS] is LatestBlessedModelStrategy


@pytest.mark.parametrize(
    ("other", "comparable"),
    [
        pytest.param({"label": "tips", "task": "binary", "reads": ["fare"]}, True, id="other-features"),
        pytest.param({"label": "fare", "task": "binary"}, False, id="another-label"),
        pytest.param({"label": "tips", "task": "regression"}, False, id="another-task"),
        pytest.param(None, False, id="a-model-of-own-code"),
    ],
)
def test_a_model_that_predicts_something_else_is_no_baseline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: dict[str, Any] | None, comparable: bool
):
    models = [Model(), Model()]
    for number, (made, sense) in enumerate(zip(models, [{"label": "tips", "task": "binary"}, other], strict=True)):
        made.uri = str(tmp_path / str(number))
        extra = tmp_path / str(number) / "Format-Serving" / "assets.extra"
        extra.mkdir(parents=True)
        if sense is not None:
            (extra / "warm_start.json").write_text(json.dumps({"sense": sense, "exclude_seen": None}))
    usable = drop_unusable_baseline({"model": models[:1], "baseline_model": models[1:]})
    assert usable == {"model": models[:1], **({"baseline_model": models[1:]} if comparable else {})}
    assert ("it is not the baseline" in caplog.text) is not comparable


@pytest.mark.parametrize(("candidate", "other"), [("user", "user"), ("user", None), (None, None), ("user", "old")])
def test_retrievals_are_comparable_if_both_leave_out_seen_items(
    tmp_path: Path, candidate: str | None, other: str | None
) -> None:
    models = [Model(), Model()]
    for number, (made, user) in enumerate(zip(models, [candidate, other], strict=True)):
        made.uri = str(tmp_path / str(number))
        extra = tmp_path / str(number) / "Format-Serving" / "assets.extra"
        extra.mkdir(parents=True)
        described = {"sense": {"label": "clicked", "task": "retrieval"}, "exclude_seen": user}
        (extra / "warm_start.json").write_text(json.dumps(described))
    usable = drop_unusable_baseline({"model": models[:1], "baseline_model": models[1:]})
    assert ("baseline_model" in usable) is (candidate == other)
