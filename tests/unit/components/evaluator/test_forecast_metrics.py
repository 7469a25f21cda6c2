"""Metrics of forecasts, and the comparison with the seasonal naive forecast, equal computations over all rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.evaluator.config import EvaluationConfig
from components.evaluator.error_metrics import MeanScaledError, SymmetricPercentageError, WeightedPercentageError
from components.evaluator.gate import judge
from components.evaluator.saved_model import Evaluated
from components.evaluator.verdict import ConstantMetric, Measured, SliceMetrics
from tests.support.data.tolerances import float64_sum
from tests.unit.components.evaluator.test_constant import assert_equal, compare, compare_pairs
from tests.unit.components.evaluator.test_error_metrics import compute_by_columns, compute_by_rows

RANDOM = np.random.default_rng(3)
ROWS = 400
LABELS = RANDOM.gamma(2, 20, ROWS)
PREDICTIONS = (LABELS + RANDOM.normal(0, 5, ROWS)).astype(np.float32)
NAIVE = LABELS + RANDOM.normal(0, 9, ROWS)
SCALES = RANDOM.gamma(3, 2, ROWS)
ERRORS = np.abs(LABELS - PREDICTIONS)
NEAR = float64_sum(ROWS, largest=200)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (SymmetricPercentageError("x"), 200 * np.mean(ERRORS / (LABELS + np.abs(PREDICTIONS)))),
        (WeightedPercentageError("x"), 100 * ERRORS.sum() / LABELS.sum()),
    ],
)
def test_percentages_are_those_of_numpy(metric: Any, expected: float) -> None:
    assert compute_by_columns(metric, LABELS, PREDICTIONS) == NEAR.approx(expected)
    assert compute_by_rows(metric, LABELS, PREDICTIONS) == NEAR.approx(expected)


def test_percentages_of_zeros_are_defined() -> None:
    zeros = np.zeros(2)
    assert compute_by_columns(SymmetricPercentageError("x"), zeros, zeros) == 0
    assert compute_by_columns(SymmetricPercentageError("x"), zeros, np.ones(2)) == 200
    assert math.isnan(compute_by_columns(WeightedPercentageError("x"), zeros, np.ones(2)))


def test_scaled_error_ignores_rows_without_a_scale() -> None:
    scales = SCALES.copy()
    scales[:50], scales[50:60] = np.nan, 0
    combiner = MeanScaledError("x").computations()[0].combiner
    assert combiner.columns == ["seasonal_scale"]
    bins, summands = combiner.bins(LABELS, np.stack([PREDICTIONS, scales], axis=1))
    assert (bins == 0).sum() == ROWS - 60
    assert summands[bins == 0, 0].mean() == NEAR.approx((ERRORS / SCALES)[60:].mean())
    bins, _ = combiner.bins(LABELS, np.full(ROWS, np.nan))
    assert not (bins == 0).any(), "the columns are unknown"


def test_columns_of_the_examples_are_outputs() -> None:
    lists = pa.array([[1.5], None, [], [2.5, 3.5], [4.5]], pa.list_(pa.float32()))
    batch = pa.RecordBatch.from_arrays([lists, pa.nulls(5)], ["a", "empty"]).slice(1)
    rows = Evaluated(np.zeros(4), np.arange(4.0), {}, {}).add_columns(batch, ["a", "empty", "none"], "column:")
    np.testing.assert_array_equal(rows.output(",column:a"), [[0, np.nan], [1, np.nan], [2, np.nan], [3, 4.5]])
    assert np.isnan(rows.output("column:empty,column:none")).all()
    assert np.isnan(rows.output(",column:other")).shape == (4,)


@pytest.mark.parametrize("of_loss", [{}, {"of_loss": "quantile_loss", "quantiles": [0.5]}], ids=["mean", "quantile"])
def test_forecasts_are_compared_with_the_seasonal_naive_forecast(of_loss: dict[str, Any]) -> None:
    scales = SCALES.copy()
    scales[:20] = np.nan
    columns = np.stack([PREDICTIONS, NAIVE, scales], axis=1)
    quantiles = of_loss.pop("quantiles", None)
    options = {**of_loss, **({"quantiles": quantiles} if quantiles else {})}
    comparison = compare("regression", LABELS, columns, forecasts=True, **options)
    errors = np.abs(LABELS - NAIVE)
    assert_equal(comparison["mean_absolute_error"], compare_pairs(errors, ERRORS))
    assert_equal(comparison["mean_squared_error"], compare_pairs(errors**2, ERRORS**2))
    expected = {
        "root_mean_squared_error": math.sqrt((errors**2).mean()),
        "wape": 100 * errors.sum() / LABELS.sum(),
        "smape": 200 * (errors / (LABELS + np.abs(NAIVE))).mean(),
        "mase": (errors / SCALES)[20:].mean(),
    }
    assert {name: comparison[name].value for name in expected} == NEAR.approx(expected)
    assert comparison.keys() == {*expected, "mean_absolute_error", "mean_squared_error"}


def test_weights_count_as_repeated_rows() -> None:
    columns, weights = np.stack([PREDICTIONS, NAIVE, SCALES], axis=1), RANDOM.integers(1, 4, ROWS)
    weighted = compare("regression", LABELS, columns, weights=weights.astype(np.float64), forecasts=True)
    repeated = compare("regression", np.repeat(LABELS, weights), np.repeat(columns, weights, axis=0), forecasts=True)
    for name, compared in repeated.items():
        assert weighted[name].value == NEAR.approx(compared.value)
        assert weighted[name].gain == NEAR.approx(compared.gain, nan_ok=True)


def test_verdict_names_the_seasonal_naive_forecast() -> None:
    config = EvaluationConfig(thresholds={"mean_absolute_error": {"max": 100.0}})
    metrics = {"mean_absolute_error": 5.0, "mean_squared_error": 50.0}

    def judge_gain(gain: float) -> tuple[bool, str]:
        constant = {
            "mean_absolute_error": ConstantMetric(4.0, gain, (gain - 0.5, gain + 0.5)),
            "mean_squared_error": ConstantMetric(40.0, -10.0, (-12.0, -8.0)),
            "mase": ConstantMetric(1.0),
        }
        overall = SliceMetrics({}, 100, metrics, {}, {}, constant)
        verdict = judge(config, Measured(overall, (), False), None, task="regression")
        return verdict.blessed, next(str(check) for check in verdict.checks if check.kind == "constant")

    blessed, text = judge_gain(-1.0)
    assert not blessed
    assert "below the seasonal naive forecast's 4" in text
    blessed, text = judge_gain(1.0)
    assert blessed
