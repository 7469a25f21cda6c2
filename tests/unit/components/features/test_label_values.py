"""Labels computed by NumPy equal the transform graph's. End-to-end tests compare taxi, clicks and digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.base.config_section import Task
from components.features import expression, label_values
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.label import label
from components.features.plan import FeaturePlan

TYPES = {"text": pa.large_binary(), "other": pa.binary(), "count": pa.int64(), "price": pa.float32()}
VALUES: dict[str, list[Any]] = {
    "text": [b"a", b"b", None, b"", b"\xff", "é".encode(), b"a", None],
    "other": [b"a", b"a", b"a", b"", None, b"z", b"b", None],
    "count": [1, 0, None, 2**53 + 1, -3, 2, 1, 7],
    "price": [1.0, 0.1, 2.5, None, float("inf"), float("nan"), 0.0, 1e-30],
}
COLUMNS = {name: pa.array(values, TYPES[name]) for name, values in VALUES.items()}


def compute_in_graph(text: str | dict[str, str], task: Task) -> Any:
    """Compute one label or several labels from sparse columns as Transform does."""
    features = FeaturesConfig.model_validate({"columns": {"count": "z_score"}})
    texts = {"": text} if isinstance(text, str) else text
    plan = FeaturePlan(features=features, labels=tuple(Label(text, name) for name, text in texts.items()), task=task)
    dtypes = {"text": tf.string, "other": tf.string, "count": tf.int64, "price": tf.float32}
    columns = {}
    for name, values in VALUES.items():
        present = [[row, 0] for row, value in enumerate(values) if value is not None]
        present_values = tf.constant([value for value in values if value is not None], dtypes[name])
        columns[name] = column(name, tf.SparseTensor(present, present_values, [len(values), 1]))
    return label(plan, columns).finish([]).numpy()


@pytest.mark.parametrize(
    "text",
    ["price", "count", "text", "text == 'a'", "text != 'a'", "text == 'é'", "not text == 'a'", "text == other",
     "text != other", "price > 0.1", "price >= 0.1", "not price > 0.1", "price != 1", "count != 1", "count == 1",
     "count > 9007199254740992", "-count < price / 0", "price < 2 * count - 1", "count / price >= 1",
     "price <= 1 and not (text == 'a' or count != 1)", "price == price"],
)  # fmt: skip
def test_label_of_two_classes(text: str) -> None:
    labels = label_values.labels(expression.parse(text), "binary", COLUMNS)
    assert labels.dtype == np.float64
    assert labels.tolist() == compute_in_graph(text, "binary").tolist()


@pytest.mark.parametrize("text", ["price", "count", "price + count / 3", "-price * 1e300 * 1e300", "price > 0.1"])
def test_label_of_a_regression_equals_the_graphs(text: str) -> None:
    labels = label_values.labels(expression.parse(text), "regression", COLUMNS)
    np.testing.assert_array_equal(labels, compute_in_graph(text, "regression"))
    assert (labels[~np.isnan(labels)] == labels[~np.isnan(labels)].astype(np.float32)).all()


@pytest.mark.parametrize(
    ("name", "expected"), [("text", [0, 1, None, None, 2, 3, 0, None]), ("count", [0, 1, None, 2, 3, 4, 0, 5])]
)
def test_classes_are_numbered_in_order_of_appearance(name: str, expected: list[float | None]) -> None:
    labels = label_values.labels(expression.parse(name), "multiclass", COLUMNS)
    assert [None if np.isnan(value) else value for value in labels] == expected


@pytest.mark.parametrize("text", ["price == 'a'", "price != 'a'", "count + text > 1", "-text == 1", "text > 1"])
def test_expression_that_does_not_fit_its_columns_is_an_error(text: str) -> None:
    with pytest.raises(TypeError):
        label_values.labels(expression.parse(text), "binary", COLUMNS)


def test_several_labels_are_stacked_in_the_order_of_the_config() -> None:
    labels = {"second": "count == 1", "first": "text == 'a'"}
    expected = np.stack([compute_in_graph(text, "binary") for text in labels.values()], axis=1)
    np.testing.assert_array_equal(compute_in_graph(labels, "binary"), expected)
    numbers = compute_in_graph({"one": "price", "other": "count"}, "regression")
    assert (numbers.shape, numbers.dtype) == ((8, 2), np.float32)
