"""Why a node ran: the input or parameter that an earlier run had otherwise."""

from __future__ import annotations

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from past import Past

from components.errors import InputError
from pipeline.inspection.cache_reasons import Difference, Reason, flat, why_not_cached


def why(past: Past, run: str, node: str) -> Reason:
    [found] = [each for each in past.store.runs() if each.name == run]
    return why_not_cached(past.store, found, node)


def test_a_parameter_had_changed(past: Past):
    reason = why(past, "r2", "Trainer")
    assert reason.earlier is not None
    assert reason.earlier.run == "r1"
    assert reason.differences == (Difference("parameter", "custom_config.plan.learning_rate", "0.1", "0.2"),)
    assert reason.gone == ()


def test_the_earlier_run_that_differs_least_is_named(past: Past):
    reason = why(past, "r3", "Trainer")
    rows = [f"Examples {past.number(name)}" for name in ("rows 1", "rows 3")]
    assert reason.earlier is not None
    assert (reason.earlier.run, reason.differences) == ("r2", (Difference("input", "examples", *rows),))


def test_an_input_that_was_not_there_before(past: Past):
    [baseline] = [each for each in why(past, "r2", "Evaluator").differences if each.name == "baseline_model"]
    assert (baseline.before, baseline.now) == (None, f"Model {past.number('model 1')}")
    # The baseline was made by the first run's Trainer.
    assert why(past, "r2", "Evaluator").after == ("Trainer",)
    assert why(past, "r3", "Trainer").after == ("ExampleGen",)


def test_nothing_has_changed_but_the_output_is_gone(past: Past):
    model = past.artifacts["model 2"]
    [told] = past.writer.store.get_artifacts_by_id([model.id])
    told.state = proto.Artifact.DELETED
    past.writer.store.put_artifacts([told])
    parameters = {"custom_config": '{"code": "abc", "plan": {"learning_rate": 0.2, "hidden": [8, 4]}}'}
    past.writer.execution("r4", "Trainer", inputs={"examples": past.artifacts["rows 1"]}, parameters=parameters)
    reason = why(past, "r4", "Trainer")
    assert (reason.differences, [each.id for each in reason.gone]) == ((), [model.id])


def test_it_was_cached_or_is_new(past: Past):
    assert why(past, "r2", "ExampleGen").execution.state == "CACHED"
    assert why(past, "r1", "Trainer").earlier is None


def test_a_node_that_is_not_there(past: Past):
    with pytest.raises(InputError, match="did you mean 'Trainer'"):
        why(past, "r1", "Traner")


def test_structures_are_taken_apart():
    told = {"a": {"b": [1, {"c": None}], "d": {}, "e": []}, "f": '{"g": "h"}', "i": "{no json"}
    assert dict(flat(told)) == {
        "a.b.0": "1",
        "a.b.1.c": "null",
        "a.d": "{}",
        "a.e": "[]",
        "f.g": "h",
        "i": "{no json",
    }
