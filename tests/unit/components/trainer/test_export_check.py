"""Tests of the check of an exported model: equal predictions pass, and different predictions are an error."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.base import child_process
from components.base.errors import MachineError
from components.trainer import export_check
from components.trainer.export_check_process import SignatureArrays
from components.trainer.probe_rows import ProbeRows
from tests.support.programs import forked_export_check
from tests.support.programs.waiting_export_check import operations
from tests.support.servers.in_fork_server import in_child, main_of

ROOT = Path(__file__).parents[4]
SPECS = {"fare": tf.io.VarLenFeature(tf.float32), "company": tf.io.VarLenFeature(tf.string)}
ROWS = ProbeRows({"fare": [None, 2.0, 3.0], "company": [None, b"a", b"b"]}, SPECS)
EXPECTED = {"probability": tf.constant([[0.5], [0.25], [math.nan]]), "classes": tf.constant([["x"], ["x"], ["y"]])}


def error_of(outputs: Mapping[str, Any], raw: Mapping[str, Any] | None = None) -> MachineError | None:
    """Check a model whose new process returns these outputs. Return the error, or None if the check passes."""

    def predict(model: str, signatures: Mapping[str, Mapping[str, Any]]) -> SignatureArrays:
        assert {name: set(inputs) for name, inputs in signatures.items()} == {
            "serving_default": {"examples"},
            "raw": {"fare", "company"},
        }
        response = {"serving_default": outputs, "raw": raw or outputs}
        return {name: {key: value.numpy() for key, value in tensors.items()} for name, tensors in response.items()}

    try:
        export_check.check(predict, "model", ROWS, EXPECTED)
    except MachineError as error:
        return error
    return None


def test_equal_predictions_pass() -> None:
    assert error_of(EXPECTED) is None


def test_differences_by_rounding_pass() -> None:
    assert error_of({**EXPECTED, "probability": tf.constant([[0.500004], [0.249999], [math.nan]])}) is None


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
def test_different_prediction_is_an_error(changed: Mapping[str, Any], headline: str) -> None:
    error = error_of(EXPECTED, {**EXPECTED, **changed})
    assert error is not None
    assert error.headline == headline


def test_ranks_may_differ_in_a_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = tf.range(1, 31, dtype=tf.int64)[:, None]
    monkeypatch.setitem(EXPECTED, "rank", ranks)
    assert error_of({**EXPECTED, "rank": tf.where(ranks <= 3, ranks + 1, ranks)}) is None
    error = error_of({**EXPECTED, "rank": tf.where(ranks <= 4, ranks + 1, ranks)})
    assert error is not None
    assert error.headline.startswith("serving_default of the exported model, rank, row 0: expected 1, received 2")


def test_error_contains_the_row() -> None:
    error = error_of({**EXPECTED, "classes": tf.constant([["x"], ["y"], ["y"]])})
    assert error is not None
    assert error.headline.startswith("serving_default of the exported model, classes, row 1")
    assert error.details == ("fare: 2.0", "company: b'a'")


class Doubling(tf.Module):  # type: ignore[misc]
    """A model that multiplies the length of a text by a variable."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = tf.Variable(factor)

    def lengths(self, rows: Any) -> dict[str, Any]:
        return {"length": self.factor * tf.cast(tf.strings.length(rows), tf.float32)[:, None]}

    def save(self, path: Path) -> None:
        spec = [tf.TensorSpec([None], tf.string, name="examples")]
        serve = tf.function(self.lengths, input_signature=spec, autograph=False)
        raw = tf.function(
            lambda columns: self.lengths(columns["company"]),
            input_signature=[{"company": tf.TensorSpec([None], tf.string, name="company")}],
            autograph=False,
        )
        tf.saved_model.save(self, str(path), signatures={"serving_default": serve, "raw": raw})


@pytest.mark.both_lines
@pytest.mark.extended
def test_real_process_detects_other_weights(tmp_path: Path) -> None:
    rows = ProbeRows({"company": [b"a", b"bcd"]}, {"company": SPECS["company"]})
    model = Doubling(2.0)
    model.save(tmp_path)
    model.factor.assign(3.0)
    with export_check.prediction_process() as predict, pytest.raises(MachineError) as error:
        export_check.check(predict, str(tmp_path), rows, model.lengths(rows.examples()))
    assert "serving_default of the exported model, length, row 0: expected" in str(error.value)


@pytest.mark.both_lines
def test_process_reports_a_model_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_PYTHON", forked_export_check.python())
    with export_check.prediction_process() as predict, pytest.raises(MachineError) as error:
        predict(str(tmp_path / "none"), {})
    assert "cannot be loaded and run in a new process: OSError: SavedModel file does not exist" in str(error.value)


@pytest.mark.parametrize("killed", [1, 2])
def test_killed_process_is_replaced_once_and_says_nothing_about_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    interpreter = tmp_path / "python"
    # While there are files, every start removes one of them and kills itself.
    for number in range(killed):
        (tmp_path / f"kill-{number}").touch()
    interpreter.write_text(
        f"#!/bin/sh\nfile=$(ls {tmp_path}/kill-* 2>/dev/null | head -n 1)\n"
        f'if [ -n "$file" ]; then rm "$file"; kill -KILL $$; fi\nexec {forked_export_check.python()} "$@"\n'
    )
    interpreter.chmod(0o755)
    monkeypatch.setattr(child_process, "_PYTHON", str(interpreter))
    with export_check.prediction_process() as predict, pytest.raises(MachineError) as error:
        predict(str(tmp_path / "none"), {})
    expected = (
        "cannot be loaded and run"
        if killed == 1
        else "was killed by SIGKILL, 2 times in a row\n  remedy: if memory was short"
    )
    assert expected in str(error.value)
    assert not list(tmp_path.glob("kill-*"))


@pytest.mark.both_lines
@pytest.mark.parametrize("kill", [False, True])
def test_forked_process_computes_the_exported_model(tmp_path: Path, kill: bool) -> None:
    Doubling(2.0).save(tmp_path / "model")
    log = tmp_path / "log"
    assert in_child(log, main_of, "waiting_export_check", str(tmp_path / "model"), kill) == [[2.0], [6.0]]
    # A new interpreter replaces a killed process.
    assert ("it is started once more" in log.read_text()) is kill


@pytest.mark.both_lines
@pytest.mark.extended
def test_imports_of_nodes_do_not_add_operations_that_a_model_could_need(tmp_path: Path) -> None:
    program = (
        "import json; from tests.support.programs import waiting_export_check;"
        "print(json.dumps(waiting_export_check.operations()))"
    )
    plain = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert in_child(tmp_path / "log", operations) == json.loads(plain.stdout.splitlines()[-1])


def test_error_before_the_request_is_passed_on() -> None:
    with pytest.raises(ValueError, match="no such luck"), export_check.prediction_process():
        raise ValueError("no such luck")
