"""Tests for the contributions of columns to a prediction, compared with known effects and exact values."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import InputError
from pipeline.inspection import row_explanation
from pipeline.inspection.row_explanation import Floats, Masks, parse_rows, shapley_values


def test_effects_and_interactions_are_attributed_to_columns():
    # The effects are 3 for the first column, -1 for the second, 4 for the first and third together, 0 for the last.
    values, errors = shapley_values(
        lambda on, number: 1 + 3 * on[:, 0] - on[:, 1] + 4 * on[:, 0] * on[:, 2] + 0 * on[:, 3], 4
    )
    np.testing.assert_allclose(values, [5, -1, 2, 0], atol=1e-12)
    assert not errors.any()


def predict_nonlinearly(on: Masks, number: int = 0) -> Floats:
    """Return a prediction in which all columns interact, and whose interaction depends on the baseline row."""
    weights = np.random.default_rng(7).normal(size=on.shape[1])
    scores = on @ weights + on[:, 0] * on[:, 1] - (2 + number) * on[:, 1] * on[:, 2] * on[:, -1]
    probabilities: Floats = 1 / (1 + np.exp(-scores))
    return probabilities


def test_exact_values_are_the_mean_over_all_orders():
    columns = 5
    expected = np.mean(
        [
            row_explanation._compute_changes(predict_nonlinearly, np.array(order))
            for order in itertools.permutations(range(columns))
        ],
        axis=0,
    )
    values, _ = shapley_values(predict_nonlinearly, columns)
    np.testing.assert_allclose(values, expected, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 14, 15, 60])
def test_contributions_add_up_to_the_difference_between_predictions(columns: int):
    def predict(on: Masks, number: int) -> Floats:
        return predict_nonlinearly(np.concatenate([on, np.zeros((len(on), 3), bool)], axis=1))

    values, errors = shapley_values(predict, columns)
    none, every = predict(np.repeat([[False], [True]], columns, axis=1), 0)
    assert values.sum() == pytest.approx(every - none, abs=1e-9)
    assert errors.any() == (columns > 14)


def test_random_orders_are_near_the_exact_values(monkeypatch: pytest.MonkeyPatch):
    exact, _ = shapley_values(predict_nonlinearly, 12)
    monkeypatch.setattr(row_explanation, "_MOST_PREDICTIONS", 1 << 11)
    values, errors = shapley_values(predict_nonlinearly, 12)
    assert (errors > 0).all()
    assert (np.abs(values - exact) < 4 * errors).all()
    assert errors.max() < 0.02


@pytest.mark.parametrize("columns", [5, 12])
def test_values_are_averaged_over_baseline_rows(columns: int):
    def of_baseline(number: int) -> Floats:
        return shapley_values(lambda on, _: predict_nonlinearly(on, number), columns)[0]

    exact = [of_baseline(number) for number in range(8)]
    values, errors = shapley_values(predict_nonlinearly, columns, 8)
    assert errors.any() == (columns == 12)
    np.testing.assert_allclose(values, np.mean(exact, axis=0), atol=float(4 * errors.max() + 1e-12))
    none, every = (
        np.mean([predict_nonlinearly(np.full((1, columns), is_set), number) for number in range(8)])
        for is_set in (False, True)
    )
    assert values.sum() == pytest.approx(every - none, abs=1e-9)


def test_equal_rows_do_not_have_contributions():
    assert [len(array) for array in shapley_values(predict_nonlinearly, 0)] == [0, 0]


def test_events_of_a_history_count_as_one_column(tmp_path: Path):
    class Sum(tf.Module):  # type: ignore[misc]
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int64, "past"), tf.TensorSpec([None], tf.float32, "fare")]
        )
        def raw(self, past: Any, fare: Any) -> Any:
            known = tf.where(past == tf.int64.min, tf.zeros_like(past), past)
            return {"prediction": tf.cast(tf.reduce_sum(known, axis=1), tf.float32) + fare}

    module = Sum()
    tf.saved_model.save(module, str(tmp_path), signatures={"raw": module.raw})
    model = row_explanation.RawModel(str(tmp_path))
    explained = model.explain({"past": [1, 2, 4], "fare": 0.5}, [{"past": [10], "fare": 2}])
    assert {column.column: (column.value, column.baseline, column.contribution) for column in explained.columns} == {
        "past": ((1, 2, 4), (10,), -3),
        "fare": (0.5, 2, -1.5),
    }
    assert model.explain({"past": [7], "fare": 1}, [{"fare": 1}]).columns[0].contribution == 7
    with pytest.raises(InputError, match="expected a whole number or null in column past, received 'x'"):
        model.explain({"past": [1, "x"]}, [{}])
    # A linear model: the contribution is the difference to the mean of the baseline rows.
    of_several = model.explain(
        {"past": [4], "fare": 3}, [{"past": [1], "fare": 0}, {"past": [1, 2], "fare": 3}, {"past": [1], "fare": 0}]
    )
    past, fare = of_several.columns
    assert (past.baseline, past.contribution) == ((1,), pytest.approx(4 - 5 / 3, abs=1e-6))
    assert (of_several.baseline_rows, fare.baseline, fare.contribution) == (3, 1, pytest.approx(2, abs=1e-6))


def test_score_and_error_of_an_anomaly_model_are_explained(tmp_path: Path):
    class Anomaly(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "a"), tf.TensorSpec([None], tf.float32, "b")])
        def raw(self, a: Any, b: Any) -> Any:
            error = a + 2 * b
            return {"score": error / 100, "error": error, "is_anomaly": tf.cast(error > 9, tf.int64)}

    module = Anomaly()
    tf.saved_model.save(module, str(tmp_path), signatures={"raw": module.raw})
    model = row_explanation.RawModel(str(tmp_path))
    for output, unit in ((None, 0.01), ("error", 1)):
        explained = model.explain({"a": 1, "b": 5}, [{"a": 0, "b": 0}], output)
        assert explained.output == (output or "score")
        assert [column.contribution for column in explained.columns] == pytest.approx([10 * unit, unit], abs=1e-6)
    with pytest.raises(InputError, match="does not have a prediction 'is_anomaly'"):
        model.explain({"a": 1, "b": 5}, [{"a": 0, "b": 0}], "is_anomaly")


def test_rows_are_parsed_from_json_objects():
    assert parse_rows(['{"a": 1, "b": null}', "", '{"a": "x"}']) == [{"a": 1, "b": None}, {"a": "x"}]
    for text in ("[1]", "{", "3"):
        with pytest.raises(InputError, match="row 2: expected a JSON object of columns and values, received"):
            parse_rows(["{}", text])
    assert math.isnan(parse_rows(['{"a": NaN}'])[0]["a"])
