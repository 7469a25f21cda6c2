"""Rows of a group have equal row keys, and row keys of times keep their order."""

from __future__ import annotations

import pytest
import tensorflow as tf

from components.features import feature_names
from components.features.column import Parsed, column
from components.features.plan import RowKey
from components.features.row_key import compute

MISSING = feature_names.NO_ROW_KEY


def keys(key: RowKey, **columns: Parsed) -> list[int]:
    computed = compute(key, {name: column(name, values) for name, values in columns.items()})[feature_names.ROW_KEY]
    assert computed.dtype == tf.int64
    row_keys: list[int] = computed.numpy().tolist()
    return row_keys


@pytest.mark.parametrize("values", [[7, 8, 7], [0.5, 1.5, 0.5], ["a", "b", "a"]])
def test_equal_values_have_equal_keys(values: list[int | float | str]) -> None:
    first, second, third = keys(RowKey(by="group", columns=("user",)), user=tf.constant(values))
    assert first == third != second
    assert first != MISSING


def test_key_of_a_group_combines_several_columns() -> None:
    row_keys = keys(
        RowKey(by="group", columns=("user", "shop")),
        user=tf.constant(["a", "a", "b", "a"]),
        shop=tf.constant([1, 2, 1, 1]),
    )
    assert row_keys[0] == row_keys[3]
    assert len({*row_keys}) == 3


def test_key_is_missing_only_if_all_columns_of_the_group_are_missing() -> None:
    user = tf.SparseTensor([[0, 0], [2, 0]], ["a", "a"], [4, 1])
    shop = tf.SparseTensor([[0, 0], [1, 0]], ["x", "x"], [4, 1])
    row_keys = keys(RowKey(by="group", columns=("user", "shop")), user=user, shop=shop)
    assert [key == MISSING for key in row_keys] == [False, False, False, True]
    assert len({*row_keys}) == 4


def test_times_are_read_from_numbers_and_texts() -> None:
    key = RowKey(by="time", columns=("at",))
    texts = ["1970-01-02", "2024-03-01T17:05:30+02:00", "soon"]
    assert keys(key, at=tf.constant(texts)) == [86_400, 1_709_305_500, MISSING]
    assert keys(key, at=tf.constant([86_400, 1_709_305_530])) == [86_400, 1_709_305_530]
    assert keys(key, at=tf.constant([86_400.5, float("nan")])) == [86_400, MISSING]


def test_forecasts_have_the_times_of_origin_and_label() -> None:
    columns = {
        "origin": column("origin", tf.constant(["1970-01-01", "1970-01-02"])),
        "date": column("date", tf.constant(["1970-01-03", "soon"])),
    }
    computed = compute(RowKey(by="origin", columns=("origin", "date")), columns)
    assert {name: values.numpy().tolist() for name, values in computed.items()} == {
        feature_names.ROW_KEY: [0, 86_400],
        feature_names.ROW_END: [172_800, MISSING],
    }
