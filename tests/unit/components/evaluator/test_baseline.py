"""The baseline is the latest blessed model other than the candidate."""

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
    artifact = Model()
    artifact.id = number
    artifact.uri = f"/models/{number}"
    return artifact


def blessing(model_id: int, blessed: int) -> Any:
    artifact = ModelBlessing()
    artifact.set_int_custom_property("current_model_id", model_id)
    artifact.set_int_custom_property("blessed", blessed)
    return artifact


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
def test_baseline_is_the_latest_blessed_model_other_than_the_candidate(
    blessed: dict[int, int], candidate: int, expected: list[int]
):
    models = {number: model(number) for number in {*blessed, candidate}}
    inputs = {
        "model": list(models.values()),
        "model_blessing": [blessing(number, is_blessed) for number, is_blessed in blessed.items()],
        "candidate": [models[candidate]],
    }
    result = LatestOtherBlessedModel().resolve_artifacts(None, inputs)
    assert [artifact.id for artifact in result["model"]] == expected
    assert [artifact.get_int_custom_property("current_model_id") for artifact in result["model_blessing"]] == expected
    assert result["candidate"] == [models[candidate]]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(None, None, id="none-was-looked-up"),
        pytest.param([], None, id="none-was-found"),
        pytest.param([1], None, id="itself-by-tfx-own-strategy"),
        pytest.param([2], [2], id="another-one"),
    ],
)
def test_candidate_is_never_used_as_the_baseline(result: list[int] | None, expected: list[int] | None):
    inputs = {"model": [model(1)], "examples": []}
    resolved_inputs = inputs if result is None else {**inputs, "baseline_model": [model(number) for number in result]}
    usable_inputs = drop_unusable_baseline(resolved_inputs)
    assert usable_inputs.keys() == inputs.keys() | ({"baseline_model"} if expected else set())
    assert [artifact.id for artifact in usable_inputs.get("baseline_model", [])] == (expected or [])


def test_resolver_without_a_candidate_uses_the_strategy_that_vertex_ai_supports():
    node = baseline(None)
    assert (node.id, set(node.inputs)) == ("LatestBlessedModel", {"model", "model_blessing"})
    assert node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS] is LatestBlessedModelStrategy


@pytest.mark.parametrize(
    ("baseline_sense", "comparable"),
    [
        pytest.param({"labels": [["", "tips"]], "task": "binary", "reads": ["fare"]}, True, id="other-features"),
        pytest.param({"labels": [["", "fare"]], "task": "binary"}, False, id="another-label"),
        pytest.param({"labels": [["", "tips"]], "task": "regression"}, False, id="another-task"),
        pytest.param(None, False, id="a-model-of-own-code"),
    ],
)
def test_model_that_predicts_something_else_is_not_a_baseline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, baseline_sense: dict[str, Any] | None, comparable: bool
):
    models = [Model(), Model()]
    for number, (artifact, sense) in enumerate(
        zip(models, [{"labels": [["", "tips"]], "task": "binary"}, baseline_sense], strict=True)
    ):
        artifact.uri = str(tmp_path / str(number))
        extra = tmp_path / str(number) / "Format-Serving" / "assets.extra"
        extra.mkdir(parents=True)
        if sense is not None:
            (extra / "warm_start.json").write_text(json.dumps({"sense": sense, "exclude_seen": None}))
    usable = drop_unusable_baseline({"model": models[:1], "baseline_model": models[1:]})
    assert usable == {"model": models[:1], **({"baseline_model": models[1:]} if comparable else {})}
    assert ("it is not the baseline" in caplog.text) is not comparable


@pytest.mark.parametrize(("candidate", "baseline"), [("user", "user"), ("user", None), (None, None), ("user", "old")])
def test_retrievals_are_comparable_if_both_leave_out_seen_items(
    tmp_path: Path, candidate: str | None, baseline: str | None
) -> None:
    models = [Model(), Model()]
    for number, (artifact, user) in enumerate(zip(models, [candidate, baseline], strict=True)):
        artifact.uri = str(tmp_path / str(number))
        extra = tmp_path / str(number) / "Format-Serving" / "assets.extra"
        extra.mkdir(parents=True)
        description = {"sense": {"labels": [["", "clicked"]], "task": "retrieval"}, "exclude_seen": user}
        (extra / "warm_start.json").write_text(json.dumps(description))
    usable = drop_unusable_baseline({"model": models[:1], "baseline_model": models[1:]})
    assert ("baseline_model" in usable) is (candidate == baseline)
