"""`runner.py explain` on the shipped example: importance of columns, and contributions to single predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.data.tolerances import rounding
from tests.support.runs.command import Runs, command

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]

ROWS: list[dict[str, Any]] = [
    {"payment_type": "Credit Card", "fare": 17.5, "trip_miles": 5.2, "trip_seconds": 1200, "trip_start_hour": 18},
    {"payment_type": "Cash", "fare": 4.25, "company": None},
]


def explain(taxi: Runs, *arguments: str) -> Any:
    config = ("--config", "configs/taxi.yaml")
    ended = command("explain", *config, "--output", str(taxi.output.parent), *arguments, "--json")
    assert (ended.exit_code, ended.err) == (0, "")
    return json.loads(ended.out)


@pytest.mark.slow
def test_importance_by_slice(taxi: Runs):
    overall = explain(taxi, taxi.first.result["run"])
    assert overall["rows"] == taxi.first.result["rows_evaluated"]
    # Mean of float32 predictions; TFMA computes their logarithms.
    assert overall["loss"] == pytest.approx(taxi.first.result["metrics"]["binary_crossentropy"], rel=1e-4, abs=1e-5)
    first, second = overall["columns"][:2]
    # Tips are only recorded for card payments.
    assert (first["column"], second["column"]) == ("payment_type", "fare")
    assert first["share"]["value"] > 0.9
    assert sum(column["share"]["value"] for column in overall["columns"]) == pytest.approx(1, abs=1e-6)
    by_card = explain(taxi, taxi.first.result["run"], "--slice", "payment_type = Credit Card")
    fare = next(column for column in by_card["columns"] if column["column"] == "fare")
    assert fare["loss"]["interval"][0] > second["loss"]["interval"][1]


def test_contributions_add_up_to_the_prediction(taxi: Runs, tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    version = taxi.first.result["pushed_version"]
    explained = explain(taxi, "--model", f"taxi@{version}", "--rows", str(file))
    assert explained["reference"] == "the mean of 100 training rows"
    card, cash = explained["rows"]
    assert (card["output"], len(card["columns"])) == ("probability", 14)
    assert card["prediction"] > 0.2 > 0.05 > cash["prediction"]
    for entry in (card, cash):
        total = sum(column["contribution"] for column in entry["columns"])
        assert total == pytest.approx(entry["prediction"] - entry["baseline"], abs=1e-6)
    assert card["columns"][0]["column"] == "payment_type"
    # Most trips are paid in cash. The others make it lower the probability.
    of_cash = next(column for column in cash["columns"] if column["column"] == "payment_type")
    assert (of_cash["value"], of_cash["baseline"]) == ("Cash", "Cash")
    assert of_cash["contribution"] < -0.1
    assert {entry["baseline"] for entry in (card, cash)} == {card["baseline"]}
    assert card["baseline"] == pytest.approx(mean_prediction_of_training_rows(taxi), abs=0.1)


def mean_prediction_of_training_rows(taxi: Runs) -> float:
    """Return the share of label 1 in the data, which a calibrated model predicts on average."""
    trips = pd.read_csv("data/taxi/trips.csv")
    return float((trips["tips"] > 0.2 * trips["fare"]).mean())


def test_baseline_may_be_given(taxi: Runs):
    rows = ("--row", json.dumps(ROWS[0]), "--baseline", json.dumps({**ROWS[0], "fare": 4.25}))
    [explained] = explain(taxi, taxi.first.result["run"], *rows)["rows"]
    fare, *other_columns = explained["columns"]
    assert (fare["column"], fare["value"], fare["baseline"]) == ("fare", 17.5, 4.25)
    assert fare["contribution"] == rounding(4).approx(explained["prediction"] - explained["baseline"])
    assert {column["contribution"] for column in other_columns} == {0.0}
