"""The pushed model, loaded in a fresh process, predicts what the Evaluator recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from components.features import expression, feature_names, label_values
from pipeline.authoring.config import load
from tests.support.runs.command import SUPPORT, Runs, program
from tests.support.servers.in_fork_server import in_child, main_of

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]

ROWS = 10


@pytest.fixture(scope="module")
def evaluator_rows(taxi: Runs, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return ten raw rows, and the Evaluator's inputs and predictions for them."""
    log = tmp_path_factory.mktemp("seen") / "log"
    return in_child(log, main_of, "evaluator_program", taxi.output, taxi.first.result["run"], ROWS, "tips")


@pytest.fixture(scope="module")
def answers(taxi: Runs, evaluator_rows: Any) -> Any:
    """Return the pushed model's predictions for the same rows."""
    return program(str(SUPPORT / "programs" / "predict.py"), taxi.first.result["pushed"], request=evaluator_rows)


@pytest.mark.parametrize("signature", ["serving_default", "raw"])
def test_pushed_model_predicts_what_was_evaluated(evaluator_rows: Any, answers: Any, signature: str):
    predictions = [probability for [probability] in answers[signature]["probability"]]
    # Float32 rounding: how a product is summed up depends on the size of the batch.
    assert predictions == pytest.approx(evaluator_rows["predictions"], rel=1e-5, abs=1e-7)
    # The comparison is only meaningful with different predictions and with missing values.
    assert max(predictions) - min(predictions) > 0.1
    assert sum(None in values for values in evaluator_rows["columns"].values()) > 3


def test_both_request_forms_give_the_same_predictions(answers: Any):
    assert answers["raw"] == answers["serving_default"]


def test_labels_are_those_that_were_evaluated(evaluator_rows: Any, answers: Any):
    assert answers["transform_labels"]["label"] == evaluator_rows["labels"]
    assert set(evaluator_rows["labels"]) == {0, 1}


@pytest.mark.parametrize(
    "name", ["taxi", pytest.param("clicks", marks=pytest.mark.slow), pytest.param("digits", marks=pytest.mark.slow)]
)
def test_labels_of_leakage_are_those_of_the_model(name: str, request: pytest.FixtureRequest):
    runs: Runs = request.getfixturevalue(name)
    config = load(f"configs/{name}.yaml").config
    parsed = expression.parse(config.data.label)
    raw = _split(runs.output / "artifacts/ExampleGen/examples")
    columns = {column: _first(raw.column(column)) for column in parsed.columns}
    computed = label_values.labels(parsed, config.data.task, columns)
    transformed = _split(runs.output / "artifacts/Transform/transformed_examples")
    trained = np.asarray(_first(transformed.column(feature_names.LABEL)))
    if config.data.task == "multiclass":
        # The classes have other numbers.
        assert len(set(zip(computed, trained, strict=True))) == len(set(computed)) == len(set(trained)) == 10
    else:
        np.testing.assert_array_equal(computed, trained)
        assert set(trained) == {0, 1}


def _split(examples: Path) -> pa.Table:
    """Return the eval split of the only artifact in a folder."""
    (folder,) = examples.glob("*/Split-eval")
    return parquet.read_table(folder)


def _first(column: pa.ChunkedArray) -> pa.Array:
    """Return the first value in every row, or null."""
    return pa.array([None if not row else row[0] for row in column.to_pylist()], column.type.value_type)


def test_no_signature_requires_the_label(taxi: Runs, answers: Any):
    signatures = answers["signatures"]
    assert set(signatures) == {"serving_default", "raw", "transform_features", "transform_labels", "transformed"}
    # The answers above came from examples without tips, too.
    assert "tips" not in {*signatures.pop("raw"), *signatures.pop("transformed")}
    assert set(map(tuple, signatures.values())) == {("examples",)}


def test_exported_model_contains_only_weights(answers: Any):
    weights = {name for name, shape in answers["variables"].items() if shape}
    # One tensor per weight: an optimizer would add two more tensors of the same shape.
    assert len(weights) == 10
    assert all(name.startswith("weights/") for name in weights)
