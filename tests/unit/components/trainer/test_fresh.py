"""An export is held against the network in a fresh process: what agrees passes, and what does not is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.errors import MachineError
from components.trainer import fresh
from components.trainer.reload import packed
from components.trainer.rows import Rows

SPECS = {"fare": tf.io.VarLenFeature(tf.float32), "company": tf.io.VarLenFeature(tf.string)}
ROWS = Rows({"fare": [None, 2.0, 3.0], "company": [None, b"a", b"b"]}, SPECS)
WANTED = {"probability": tf.constant([[0.5], [0.25], [math.nan]]), "classes": tf.constant([["x"], ["x"], ["y"]])}


def told(answers: Mapping[str, Any], raw: Mapping[str, Any] | None = None) -> MachineError | None:
    """How a check ends when the fresh process answers this."""

    def ask(model: str, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
        assert {name: set(inputs) for name, inputs in asked.items()} == {
            "serving_default": {"examples"},
            "raw": {"fare", "company"},
        }
        said = {"serving_default": answers, "raw": raw or answers}
        return {name: {key: packed(value) for key, value in each.items()} for name, each in said.items()}

    try:
        fresh.check(ask, "model", ROWS, WANTED)
    except MachineError as error:
        return error
    return None


def test_the_same_answers_pass() -> None:
    assert told(WANTED) is None


def test_rounding_passes() -> None:
    assert told({**WANTED, "probability": tf.constant([[0.500004], [0.249999], [math.nan]])}) is None


@pytest.mark.parametrize(
    ("changed", "headline"),
    [
        (
            {"probability": tf.constant([[0.5], [0.26], [math.nan]])},
            "raw of the exported model, probability, row 1: expected 0.25, received 0.26",
        ),
        (
            {"probability": tf.constant([[0.5], [0.25], [0.0]])},
            "raw of the exported model, probability, row 2: expected nan, received 0",
        ),
        (
            {"probability": tf.constant([[0.5], [math.nan], [math.nan]])},
            "raw of the exported model, probability, row 1: expected 0.25, received nan",
        ),
        (
            {"classes": tf.constant([["x"], ["y"], ["y"]])},
            "raw of the exported model, classes, row 1: expected x, received y",
        ),
        (
            {"probability": tf.constant([[0.5], [0.25]])},
            "raw of the exported model, probability: expected shape (3, 1), received (2, 1)",
        ),
        (
            {"more": tf.constant(0)},
            "raw of the exported model: expected the outputs probability, classes, received probability, classes, more",
        ),
    ],
)
def test_an_answer_that_differs_is_told(changed: Mapping[str, Any], headline: str) -> None:
    error = told(WANTED, {**WANTED, **changed})
    assert error is not None
    assert error.headline == headline


def test_the_row_that_is_answered_otherwise_is_told() -> None:
    error = told({**WANTED, "classes": tf.constant([["x"], ["y"], ["y"]])})
    assert error is not None
    assert error.headline.startswith("serving_default of the exported model, classes, row 1")
    assert error.details == ("fare: 2.0", "company: b'a'")


class Doubling(tf.Module):  # type: ignore[misc]
    """A model that knows a variable, or has it in its graph alone."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = tf.Variable(factor)

    def answer(self, rows: Any) -> dict[str, Any]:
        return {"length": self.factor * tf.cast(tf.strings.length(rows), tf.float32)[:, None]}

    def save(self, path: Path) -> None:
        spec = [tf.TensorSpec([None], tf.string, name="examples")]
        serve = tf.function(self.answer, input_signature=spec, autograph=False)
        raw = tf.function(
            lambda given: self.answer(given["company"]),
            input_signature=[{"company": tf.TensorSpec([None], tf.string, name="company")}],
            autograph=False,
        )
        tf.saved_model.save(self, str(path), signatures={"serving_default": serve, "raw": raw})


@pytest.mark.both_lines
def test_a_real_process_finds_that_the_weights_are_others(tmp_path: Path) -> None:
    rows = Rows({"company": [b"a", b"bcd"]}, {"company": SPECS["company"]})
    model = Doubling(2.0)
    model.save(tmp_path)
    model.factor.assign(3.0)
    with fresh.process() as ask, pytest.raises(MachineError) as error:
        fresh.check(ask, str(tmp_path), rows, model.answer(rows.examples()))
    assert "serving_default of the exported model, length, row 0: expected" in str(error.value)


@pytest.mark.both_lines
def test_a_real_process_that_cannot_load_the_model_says_why(tmp_path: Path) -> None:
    with fresh.process() as ask, pytest.raises(MachineError) as error:
        ask(str(tmp_path / "none"), {})
    assert "cannot be loaded and asked in a fresh process: OSError: SavedModel file does not exist" in str(error.value)


def test_the_process_ends_with_what_went_wrong_before_it_was_asked() -> None:
    with pytest.raises(ValueError, match="no such luck"), fresh.process():
        raise ValueError("no such luck")
