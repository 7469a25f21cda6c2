"""Tests for the reasons why a node was not cached, such as a changed input or parameter."""

from __future__ import annotations

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError
from pipeline.core.text import flatten_json
from pipeline.inspection.cache_reasons import Difference, Reason, why_not_cached
from tests.support.runs.stored_history import History


def explain(history: History, run: str, node: str) -> Reason:
    [match] = [candidate for candidate in history.store.runs() if candidate.name == run]
    return why_not_cached(history.store, match, node)


def test_changed_parameter_is_reported(history: History):
    reason = explain(history, "r2", "Trainer")
    assert reason.earlier is not None
    assert reason.earlier.run == "r1"
    assert reason.differences == (Difference("parameter", "custom_config.plan.learning_rate", "0.1", "0.2"),)
    assert reason.gone == ()


def test_earlier_run_with_the_fewest_differences_is_reported(history: History):
    reason = explain(history, "r3", "Trainer")
    rows = [f"Examples {history.number(name)}" for name in ("rows 1", "rows 3")]
    assert reason.earlier is not None
    assert (reason.earlier.run, reason.differences) == ("r2", (Difference("input", "examples", *rows),))


def test_new_input_is_reported(history: History):
    [baseline] = [
        difference
        for difference in explain(history, "r2", "Evaluator").differences
        if difference.name == "baseline_model"
    ]
    assert (baseline.before, baseline.now) == (None, f"Model {history.number('model 1')}")
    # The Trainer of the first run produced the baseline.
    assert explain(history, "r2", "Evaluator").after == ("Trainer",)
    assert explain(history, "r3", "Trainer").after == ("ExampleGen",)


def test_deleted_output_is_reported_if_nothing_else_differs(history: History):
    model = history.artifacts["model 2"]
    [artifact] = history.writer.store.get_artifacts_by_id([model.id])
    artifact.state = proto.Artifact.DELETED
    history.writer.store.put_artifacts([artifact])
    parameters = {"custom_config": '{"code": "abc", "plan": {"learning_rate": 0.2, "hidden": [8, 4]}}'}
    history.writer.execution("r4", "Trainer", inputs={"examples": history.artifacts["rows 1"]}, parameters=parameters)
    reason = explain(history, "r4", "Trainer")
    assert (reason.differences, [artifact.id for artifact in reason.gone]) == ((), [model.id])


def test_cached_or_first_execution_is_not_compared(history: History):
    assert explain(history, "r2", "ExampleGen").execution.state == "CACHED"
    assert explain(history, "r1", "Trainer").earlier is None


def test_missing_node_is_an_error(history: History):
    with pytest.raises(InputError, match="did you mean 'Trainer'"):
        explain(history, "r1", "Traner")


def test_nested_structures_are_flattened():
    value = {"a": {"b": [1, {"c": None}], "d": {}, "e": []}, "f": '{"g": "h"}', "i": "{no json"}
    assert dict(flatten_json(value)) == {
        "a.b.0": "1",
        "a.b.1.c": "null",
        "a.d": "{}",
        "a.e": "[]",
        "f.g": "h",
        "i": "{no json",
    }
