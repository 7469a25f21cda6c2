"""Contributions of columns to a prediction: they add up, and are those that follow from the model's form."""

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


def test_effects_and_interactions():
    # 3 for the first column, -1 for the second, 4 for the first and the third together, nothing for the last.
    found, errors = shapley_values(lambda on: 1 + 3 * on[:, 0] - on[:, 1] + 4 * on[:, 0] * on[:, 2] + 0 * on[:, 3], 4)
    np.testing.assert_allclose(found, [5, -1, 2, 0], atol=1e-12)
    assert not errors.any()


def nonlinear(on: Masks) -> Floats:
    """Return a prediction in which all columns interact."""
    weights = np.random.default_rng(7).normal(size=on.shape[1])
    scores = on @ weights + on[:, 0] * on[:, 1] - 2 * on[:, 1] * on[:, 2] * on[:, -1]
    found: Floats = 1 / (1 + np.exp(-scores))
    return found


def test_exact_values_are_the_mean_over_all_orders():
    columns = 5
    expected = np.mean(
        [
            row_explanation._compute_changes(nonlinear, np.array(order))
            for order in itertools.permutations(range(columns))
        ],
        axis=0,
    )
    found, _ = shapley_values(nonlinear, columns)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 14, 15, 60])
def test_contributions_add_up(columns: int):
    def predict(on: Masks) -> Floats:
        return nonlinear(np.concatenate([on, np.zeros((len(on), 3), bool)], axis=1))

    found, errors = shapley_values(predict, columns)
    none, every = predict(np.repeat([[False], [True]], columns, axis=1))
    assert found.sum() == pytest.approx(every - none, abs=1e-9)
    assert errors.any() == (columns > 14)


def test_random_orders_are_near_the_exact_values(monkeypatch: pytest.MonkeyPatch):
    exact, _ = shapley_values(nonlinear, 12)
    monkeypatch.setattr(row_explanation, "_MOST_PREDICTIONS", 1 << 11)
    found, errors = shapley_values(nonlinear, 12)
    assert (errors > 0).all()
    assert (np.abs(found - exact) < 4 * errors).all()
    assert errors.max() < 0.02


def test_equal_rows_have_no_contributions():
    assert [len(each) for each in shapley_values(nonlinear, 0)] == [0, 0]


def test_events_of_a_history_are_one_column(tmp_path: Path):
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
    explained = model.explain({"past": [1, 2, 4], "fare": 0.5}, {"past": [10], "fare": 2})
    assert {each.column: (each.value, each.baseline, each.contribution) for each in explained.columns} == {
        "past": ((1, 2, 4), (10,), -3),
        "fare": (0.5, 2, -1.5),
    }
    assert model.explain({"past": [7], "fare": 1}, {"fare": 1}).columns[0].contribution == 7
    with pytest.raises(InputError, match="expected a whole number or null in column past, received 'x'"):
        model.explain({"past": [1, "x"]}, {})


def test_rows_are_json_objects():
    assert parse_rows(['{"a": 1, "b": null}', "", '{"a": "x"}']) == [{"a": 1, "b": None}, {"a": "x"}]
    for text in ("[1]", "{", "3"):
        with pytest.raises(InputError, match="row 2: expected a JSON object of columns and values, received"):
            parse_rows(["{}", text])
    assert math.isnan(parse_rows(['{"a": NaN}'])[0]["a"])
