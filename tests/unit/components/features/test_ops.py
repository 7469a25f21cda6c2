"""Operations on a few values, with results computed by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.features import ops
from components.features.column_group import Columns
from components.features.config import FeaturesConfig

NAN, INFINITY = float("nan"), float("inf")


def apply(op: dict[str, Any], *tensors: Any, answer: Any = None) -> list[Any]:
    """Return the feature of an operation on one column, or of a cross of several columns."""
    names = [f"c{index}" for index in range(len(tensors))]
    config = {"crosses": {"x": {"columns": names, **op["cross"]}}} if "cross" in op else {"columns": {"c0": op}}
    features = FeaturesConfig.model_validate(config).declared
    (group,) = ops.group(features, Columns(dict(zip(names, tensors, strict=True))))
    (result,) = ops.apply(group, answer).values()
    return list(result.numpy().tolist())


def test_cyclical_repeats_after_every_period() -> None:
    hours = tf.constant([0.0, 6.0, 12.0, 24.0, -6.0, 240.0, NAN, INFINITY])
    result = np.array(apply({"cyclical": {"period": 24}}, hours))
    expected = [[0, 1], [1, 0], [0, -1], [0, 1], [-1, 0], [0, 1], [0, 0], [0, 0]]
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_cyclical_is_exact_for_seconds_since_1970() -> None:
    second = 1_700_000_001
    ((sin, cos),) = apply({"cyclical": {"period": 86_400}}, tf.constant([second], tf.int64))
    turn = 2 * math.pi * (second % 86_400) / 86_400
    assert (sin, cos) == pytest.approx((math.sin(turn), math.cos(turn)), abs=1e-6)


@pytest.mark.parametrize("op", ["pass_through", "log", "z_score", "clip", "min_max"])
def test_float_that_is_not_finite_counts_as_missing(op: str) -> None:
    options = {"low": 1.0} if op == "clip" else {}
    moments = tf.constant([[2.0], [1.0], [0.0], [4.0]], tf.float64)
    assert apply({op: options}, tf.constant([NAN, INFINITY, -INFINITY]), answer=moments) == [0, 0, 0]


def test_hash_distinguishes_bytes_that_are_not_utf_8() -> None:
    texts = tf.constant([b"\xff\xfe", b"\xff", b"\xc3\xa9", b"e"])
    result = apply({"hash": {"buckets": 1_000_000}}, texts)
    assert len(set(result)) == 4
    assert min(result) >= 1


def test_text_has_an_id_per_word_for_any_bytes() -> None:
    texts = tf.constant([b"Red shoes", b"red \xff shoes!", b"\xff", b""])
    first, second, *none = apply({"text": {"buckets": 1_000_000, "max_values": 5}}, texts)
    assert first == second
    assert len(set(first[:3])) == 3
    assert first[3:] == [0, 0]
    assert none == [[0] * 5, [0] * 5]


def test_values_beyond_max_values_are_dropped(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    vocabulary.write_bytes(b"a\nb\nc\n")
    split = {"split": {"max_values": 2, "separator": ","}}
    assert apply(split, tf.constant([b"a,b,c", b" c ,,", b""]), answer=tf.constant(str(vocabulary))) == [
        [1, 2],
        [3, 0],
        [0, 0],
    ]


def test_multi_hot_has_a_position_for_unknown_values(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    vocabulary.write_bytes(b"a\nb\n")
    # The vocabulary has fewer entries than `size`.
    hot = {"multi_hot": {"size": 3}}
    assert apply(hot, tf.constant([b"b|a|b", b"x|y", b""]), answer=tf.constant(str(vocabulary))) == [
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]


def test_cross_hashes_the_columns_together() -> None:
    cities, streets = tf.constant([b"x", b"x", b"y", b"x"]), tf.constant([1, 2, 1, 1], tf.int64)
    result = apply({"cross": {"buckets": 1_000_000}}, cities, streets)
    assert result[0] == result[3]
    assert len(set(result)) == 3
    assert min(result) >= 1


def test_year_is_standardized() -> None:
    dates = tf.constant([b"2024-05-01", b"2020-01-01", b"no date"])
    moments = tf.constant([[2022.0], [2.0], [0], [0]], tf.float64)
    assert apply({"date_part": {"part": "year"}}, dates, answer=moments) == [1, -1, 0]


@pytest.mark.parametrize(
    "op",
    [
        {"text": {}},
        {"text": {"vocabulary": 5}},
        {"split": {}},
        {"multi_hot": {}},
        {"date_part": {"part": "hour"}},
        {"hash": {"buckets": 5}},
        {"cross": {"buckets": 5}},
    ],
)
def test_batch_without_rows_has_empty_features(op: dict[str, Any], tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    vocabulary.write_bytes(b"a\n")
    nothing = tf.sparse.from_dense(tf.zeros([0, 0], tf.string))
    columns = [nothing] * (2 if "cross" in op else 1)
    assert apply(op, *columns, answer=tf.constant(str(vocabulary))) == []
