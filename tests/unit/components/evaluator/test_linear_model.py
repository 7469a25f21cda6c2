"""The linear model beside a model equals what NumPy computes, and is left out where it cannot be fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.base.config_section import Task
from components.data.examples import Examples, ParquetWriter, to_lists
from components.evaluator.config import EvaluationConfig
from components.evaluator.linear_model import LinearModel, measure
from components.evaluator.plan import EvaluationPlan
from components.features.expression import Label

ROWS = 2000
METRIC: dict[Task, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "mean_squared_error"}


def write(folder: Path, name: str, columns: dict[str, Any]) -> Examples:
    batch = to_lists(pa.RecordBatch.from_arrays([pa.array(values) for values in columns.values()], list(columns)))
    path = str(folder / f"{name}.parquet")
    file = ParquetWriter(path, batch.schema)
    file.write(batch)
    file.close()
    return Examples((path,), "parquet")


def make_columns(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    x, z = random.normal(size=(2, ROWS))
    city = random.integers(0, 3, ROWS)
    noise = random.normal(size=ROWS)
    number = 3 * x - 2 * z + np.array([0, 5, -5])[city] + noise
    return {
        "x": x.astype(np.float32),
        "z": z.astype(np.float32),
        "city": [f"town {at}".encode() for at in city],
        "empty": [None] * ROWS,
        "number": number.astype(np.float32),
        "positive": (number > 0).astype(np.int64),
        "kind": [("low", "middle", "high")[at].encode() for at in np.digitize(number, [-3, 3])],
        "weight": np.where(random.random(ROWS) < 0.5, 1, 3).astype(np.float32),
    }


def measure_label(folder: Path, label: str, task: Task, weight: str | None = None, rows: int = ROWS) -> LinearModel:
    plan = EvaluationPlan(
        evaluation=EvaluationConfig(thresholds={METRIC[task]: {"min": 0.0}}),
        task=task,
        labels=(Label(label),),
        feature_columns=("x", "z", "city", "empty"),
        weight=weight,
    )
    train, evaluated = (write(folder, str(seed), make_columns(seed)) for seed in (1, 2))
    return measure(train, evaluated, plan, plan.labels[0], rows)


def make_design(columns: dict[str, Any]) -> Any:
    towns = [[town == f"town {at}".encode() for at in range(3)] for town in columns["city"]]
    return np.column_stack([columns["x"], columns["z"], np.array(towns, float)]).astype(np.float64)


@pytest.mark.parametrize("weight", [None, "weight"])
def test_errors_equal_those_of_least_squares(weight: str | None, tmp_path: Path) -> None:
    train, evaluated = make_columns(1), make_columns(2)
    weights = [np.sqrt(columns[weight]) if weight else np.ones(ROWS) for columns in (train, evaluated)]
    solution = np.linalg.lstsq(make_design(train) * weights[0][:, None], train["number"] * weights[0], rcond=None)[0]
    squares = (make_design(evaluated) @ solution - evaluated["number"]) ** 2
    expected = np.average(squares, weights=weights[1] ** 2)
    metrics = measure_label(tmp_path, "number", "regression", weight).metrics
    # The penalty of 1 is small beside 2,000 rows.
    assert metrics["mean_squared_error"] == pytest.approx(expected, rel=0.01, abs=0.01)
    assert metrics["root_mean_squared_error"] == pytest.approx(expected**0.5, rel=0.01, abs=0.01)


def test_probabilities_order_rows_nearly_as_their_true_log_odds(tmp_path: Path) -> None:
    evaluated = make_columns(2)
    truth = make_design(evaluated) @ np.array([3, -2, 0, 5, -5])
    positive = evaluated["positive"] == 1
    best = np.mean(truth[positive][:, None] > truth[~positive][None])
    metrics = measure_label(tmp_path, "positive", "binary").metrics
    assert metrics["auc"] == pytest.approx(best, abs=0.005)
    assert metrics["binary_accuracy"] > np.mean(positive)
    assert 0 < metrics["brier_score"] < metrics["binary_crossentropy"] < np.log(2)


def test_classes_are_recognized(tmp_path: Path) -> None:
    metrics = measure_label(tmp_path, "kind", "multiclass").metrics
    shares = np.unique(make_columns(2)["kind"], return_counts=True)[1] / ROWS
    assert metrics["accuracy"] > shares.max() + 0.1
    assert metrics["crossentropy"] < -(shares * np.log(shares)).sum() - 0.1


def test_sample_is_bounded(tmp_path: Path) -> None:
    few = measure_label(tmp_path, "number", "regression", rows=20).metrics["mean_squared_error"]
    assert few > measure_label(tmp_path, "number", "regression").metrics["mean_squared_error"]


def test_unknown_values_and_classes_of_the_eval_split_do_not_fail(tmp_path: Path) -> None:
    plan = EvaluationPlan(
        evaluation=EvaluationConfig(thresholds={"accuracy": {"min": 0.0}}),
        task="multiclass",
        labels=(Label("kind"),),
        feature_columns=("size", "town"),
    )
    kinds, towns = [b"a", b"b"] * 50, [b"north", b"south"] * 50
    train = write(tmp_path, "train", {"size": [1.0, 2.0] * 50, "town": towns, "kind": kinds})
    rows = {"size": [np.inf, None, 2.0], "town": [b"south", None, b"west"], "kind": [b"b", b"a", b"other"]}
    metrics = measure(train, write(tmp_path, "eval", rows), plan, plan.labels[0], 1000).metrics
    assert 1 / 3 <= metrics["accuracy"] <= 2 / 3
    # The class that training did not see has the smallest probability.
    assert metrics["crossentropy"] > -np.log(1e-7) / 3


def test_constant_label_and_missing_columns_are_reasons(tmp_path: Path) -> None:
    assert "all labels are alike" in str(measure_label(tmp_path, "x > 1000", "binary").unknown)
    assert measure_label(tmp_path, "empty", "regression").unknown == "column empty of the label has no value"


@pytest.mark.parametrize(
    ("train", "evaluated", "reason"),
    [
        ({"empty": [None, None], "label": [1.0, 2.0]}, {"empty": [None], "label": [1.0]}, "no column has a value"),
        ({"empty": [], "label": []}, {"empty": [1.0], "label": [1.0]}, "a split has no rows"),
        ({"empty": [1.0, 3.0], "label": [1.0, 2.0]}, {"empty": [], "label": []}, "a split has no rows"),
    ],
)
def test_splits_without_values_are_reasons_and_no_errors(
    train: dict[str, Any], evaluated: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    plan = EvaluationPlan(
        evaluation=EvaluationConfig(thresholds={"mean_squared_error": {"max": 1.0}}),
        task="regression",
        labels=(Label("label"),),
        feature_columns=("empty", "absent"),
    )
    splits = [write(tmp_path, name, rows) for name, rows in (("train", train), ("eval", evaluated))]
    assert measure(*splits, plan, plan.labels[0], 100).unknown == reason
