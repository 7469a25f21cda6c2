"""Estimators of scikit-learn predict the same after their conversion to TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn import ensemble, linear_model, svm, tree
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from components.base.errors import InputError
from components.results.model_outputs import PREDICTION_KEY
from components.trainer.frameworks.conversion import convert
from components.trainer.frameworks.training_data import TrainingData, to_array
from tests.support.data.framework_rows import FEATURES, HEADS, TASKS, make_data
from tests.support.data.tolerances import Tolerance

CLASSIFIERS: dict[str, Any] = {
    "logistic": lambda: linear_model.LogisticRegression(max_iter=500),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=6),
    "forest": lambda: ensemble.RandomForestClassifier(40, random_state=1),
    "extra": lambda: ensemble.ExtraTreesClassifier(20, random_state=1),
    "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=30),
    "histogram": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5),
}
REGRESSORS: dict[str, Any] = {
    "linear": linear_model.LinearRegression,
    "ridge": linear_model.Ridge,
    "tree": lambda: tree.DecisionTreeRegressor(max_depth=6),
    "forest": lambda: ensemble.RandomForestRegressor(40, random_state=1),
    "extra": lambda: ensemble.ExtraTreesRegressor(20, random_state=1),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=30),
    "histogram": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5),
    "poisson": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5, loss="poisson"),
}
KINDS = [
    *((task, kind, make) for task in ("binary", "multiclass") for kind, make in CLASSIFIERS.items()),
    *(("regression", kind, make) for kind, make in REGRESSORS.items()),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Limit OpenMP, whose threads wait for each other actively, which is slow on a busy machine."""
    with threadpool_limits(1):
        yield


def predict(model: Any, data: TrainingData) -> Any:
    """Return the predictions of the converted model for the rows that are held out, [rows, outputs]."""
    head = HEADS[data.task]
    network = convert(model, data, FEATURES).build_network(FEATURES, head)
    arrays = {name: tf.constant(to_array(data.validation[name])) for name in FEATURES.features}
    return head.outputs_by_name(network(arrays))[PREDICTION_KEY[data.task]].numpy()


def expect(model: Any, rows: Any, task: str) -> Any:
    """Return the predictions of the estimator itself."""
    if task == "regression":
        return model.predict(rows)[:, np.newaxis]
    return model.predict_proba(rows)[:, 1:] if task == "binary" else model.predict_proba(rows)


def tolerance(task: str) -> Tolerance:
    return Tolerance(1e-6, 1e-5 * (30 if task == "regression" else 1))


@pytest.mark.parametrize(("task", "kind", "make"), KINDS, ids=[f"{task}-{kind}" for task, kind, _ in KINDS])
def test_converted_estimator_predicts_the_same(task: str, kind: str, make: Any) -> None:
    data = make_data(task)
    model = make().fit(data.numbers(data.train), data.train["label"].to_numpy())
    tolerance(task).assert_close(predict(model, data), expect(model, data.numbers(data.validation), task), kind)


def test_columns_are_found_by_name_and_without_names_by_position() -> None:
    data = make_data("binary")
    label = data.train["label"].to_numpy()
    some = ["words_tokens.4", "age_z_score", "hours_bins.1"]
    numbers = data.numbers(data.train)
    by_name = linear_model.LogisticRegression().fit(numbers[some], label)
    rows = data.numbers(data.validation)
    tolerance("binary").assert_close(predict(by_name, data), by_name.predict_proba(rows[some])[:, 1:])
    by_position = linear_model.LogisticRegression(max_iter=500).fit(numbers.to_numpy(), label)
    tolerance("binary").assert_close(predict(by_position, data), by_position.predict_proba(rows.to_numpy())[:, 1:])
    unknown = linear_model.LogisticRegression().fit(numbers.to_numpy()[:, :3], label)
    with pytest.raises(InputError, match=r"expected a model of the \d+ columns of `numbers`, received one of 3"):
        convert(unknown, data, FEATURES)


def test_class_without_rows_has_nearly_no_probability() -> None:
    data = make_data("multiclass")
    label = data.train["label"].to_numpy()
    rows = data.numbers(data.train)[label != 1]
    for model in (
        linear_model.LogisticRegression(max_iter=500),
        ensemble.RandomForestClassifier(10),
        ensemble.GradientBoostingClassifier(n_estimators=5),
    ):
        fitted = model.fit(rows, label[label != 1])
        predicted = predict(fitted, data)
        expected = fitted.predict_proba(data.numbers(data.validation))
        tolerance("multiclass").assert_close(predicted[:, [0, 2]], expected)
        assert np.all(predicted[:, 1] < 1e-6)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (svm.LinearSVC(), "expected a classifier with probabilities, received LinearSVC"),
        (make_pipeline(StandardScaler(), tree.DecisionTreeClassifier()), "HistGradientBoosting, received Pipeline"),
        (
            ensemble.HistGradientBoostingClassifier(categorical_features=["city_vocab"], max_iter=2),
            "without categorical features",
        ),
    ],
)
def test_other_estimators_are_refused(model: Any, message: str) -> None:
    data = make_data("binary")
    fitted = model.fit(data.numbers(data.train), data.train["label"].to_numpy())
    with pytest.raises(InputError, match=message):
        convert(fitted, data, FEATURES)


@pytest.mark.parametrize("task", TASKS)
def test_numbers_contain_every_feature(task: str) -> None:
    data = make_data(task, weighted=True)
    numbers = data.numbers(data.train)
    assert list(numbers) == [
        *("age_z_score", "city_vocab", "hours_bins.0", "hours_bins.1", "hours_bins.2"),
        *(f"words_tokens.{number}" for number in range(1, 6)),
    ]
    words = np.array(data.train["words_tokens"].to_pylist())
    np.testing.assert_array_equal(numbers["words_tokens.4"], np.any(words == 4, axis=1))
    np.testing.assert_array_equal(
        numbers["hours_bins.2"], np.array(data.train["hours_bins"].to_pylist(), np.float32)[:, 2]
    )
    np.testing.assert_array_equal(numbers["city_vocab"], data.train["city_vocab"].to_numpy())
    assert data.train["weight"].to_numpy()[-1] == 2.0
    part = data.numbers(data.train.slice(5, 3))
    np.testing.assert_array_equal(part, numbers.iloc[5:8])
