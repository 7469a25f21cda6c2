"""Decimal numbers of a file compare with constants of the config as they do in pandas' float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from components.data.decimals import decimal_numbers, number_text
from components.evaluator import permutation, tfma_results
from components.evaluator.slices import slices_of
from components.features import expression, label_values
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.label import label
from components.features.plan import FeaturePlan
from pipeline.authoring.scaffold.label import learning_task_of
from pipeline.authoring.scaffold.sample import Table

pytestmark = pytest.mark.both_lines
PRICES = np.arange(-300, 300) / 100
COUNTS = np.arange(600) % 7
EXPRESSIONS = [f"price {operator} {bound}" for operator in (">", ">=", "<", "<=", "==", "!=") for bound in (0.7, 1.1)]
EXPRESSIONS += ["price * 3 >= 2.1", "price + 0.1 <= 0.8", "-price < 0.7 or price == -0.3", "price >= 0.1 * count"]


def compute_label_in_graph(text: str, prices: npt.NDArray[np.float64]) -> list[int]:
    features = FeaturesConfig.model_validate({"columns": {"count": "z_score"}})
    columns = {
        "price": column("price", tf.constant(prices[:, np.newaxis], tf.float32)),
        "count": column("count", tf.constant(COUNTS[: len(prices), np.newaxis], tf.int64)),
    }
    plan = FeaturePlan(features=features, labels=(Label(text),), task="binary")
    return list(label(plan, columns).finish([]).numpy().tolist())


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_labels_compare_decimals_as_pandas_does(text: str) -> None:
    table = pd.DataFrame({"price": PRICES, "count": COUNTS})
    expected = table.eval(text).astype(int).tolist()
    arrays = {"price": pa.array(PRICES, pa.float32()), "count": pa.array(COUNTS)}
    assert label_values.labels(expression.parse(text), "binary", arrays).tolist() == expected
    assert compute_label_in_graph(text, PRICES) == expected


def test_decimals_of_six_digits_are_restored_at_every_size() -> None:
    random = np.random.default_rng(0)
    texts = [f"{mantissa}e{power}" for mantissa in random.integers(-999_999, 999_999, 40) for power in range(-36, 33)]
    expected = np.array([float(text) for text in texts])
    values = expected.astype(np.float32)
    assert decimal_numbers(pa.array(values)).to_pylist() == expected.tolist()
    assert column("x", tf.constant(values[:, np.newaxis])).decimal_numbers().numpy().tolist() == expected.tolist()


def test_numbers_with_more_digits_keep_their_float32_value() -> None:
    values = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    for restored in (
        np.asarray(decimal_numbers(pa.array(values))),
        column("x", tf.constant(values[:, np.newaxis])).decimal_numbers().numpy(),
    ):
        assert (restored.astype(np.float32) == values).all()


def test_missing_and_infinite_values_are_unchanged() -> None:
    restored = decimal_numbers(pa.array([float("inf"), -float("inf"), None, float("nan")], pa.float32()))
    assert restored.type == pa.float64()
    assert restored.to_pylist()[:3] == [float("inf"), -float("inf"), None]
    assert pc.is_nan(restored[3]).as_py()


def test_slices_are_named_by_the_decimals_in_the_file() -> None:
    prices = np.array([0.7, 0.1, 0.7, 2.0, 0.3])
    values = pa.array(prices[:, np.newaxis].tolist(), pa.large_list(pa.float32()))
    specs = [tfma.SlicingSpec(feature_keys=["price"]), tfma.SlicingSpec(feature_values={"price": "0.3"})]
    slices = slices_of(len(prices), lambda _: values, specs)
    rows = {slices.keys[number]: slices.rows[slices.numbers == number].tolist() for number in range(len(slices.keys))}
    expected = pd.Series(prices).groupby(prices).groups
    assert rows == {(("price", price),): at.tolist() for price, at in expected.items()}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.7, "0.7"),
        (2.0, "2"),
        (-0.1, "-0.1"),
        (1234567, "1234567"),
        (2**53 + 1, "9007199254740993"),
        (7654321.0, "7654321"),
    ],
)
def test_names_of_slices_contain_all_digits(value: float, text: str) -> None:
    kind = "int64_value" if isinstance(value, int) else "float_value"
    key = tfma.proto.metrics_for_slice_pb2.SliceKey(single_slice_keys=[{"column": "x", kind: value}])
    assert tfma_results._slice(key) == {"x": text}
    assert permutation._words((("x", value),)) == {"x": text}
    assert number_text(value) == text


def test_init_proposes_a_label_that_selects_the_rows_with_the_higher_number() -> None:
    values = np.array([0.25, 1234.567] * 20)
    table = Table({"price": pa.array(values, pa.float32())}, len(values), 0, None, 1, "csv")
    task = learning_task_of(table, "price", "binary")
    assert task.label == "price == 1234.567"
    assert compute_label_in_graph(task.label, values) == (values == 1234.567).astype(int).tolist()
