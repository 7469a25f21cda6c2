"""Columns of texts are divided into values, words and n-grams."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.features import text_values, weighted_ids
from components.features.column import Column, column, join
from tests.support.data.tolerances import float32_sum


def make_column(*rows: list[bytes]) -> Column:
    """Return a column with the given values in its rows."""
    values = tf.constant([value for row in rows for value in row], tf.string)
    return column("x", tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows]).to_sparse())


def words(*rows: list[bytes], lower: bool = True, ngrams: int = 1) -> list[list[str]]:
    result = text_values.words(make_column(*rows), lower=lower, ngrams=ngrams).to_list()
    return [[word.decode() for word in row] for row in result]


def test_values_are_the_first_values_of_the_rows() -> None:
    texts = make_column([b"a", b"b"], [], [b"c"])
    assert texts.values.numpy().tolist() == [b"a", b"", b"c"]
    assert texts.present.numpy().tolist() == [True, False, True]
    assert texts.all_texts().to_list() == [[b"a", b"b"], [], [b"c"]]


@pytest.mark.parametrize(
    ("tensor", "first", "every"),
    [
        (tf.constant([3, -1], tf.int64), [3, -1], [[b"3"], [b"-1"]]),
        (tf.constant([[3, 4], [5, 6]], tf.int64), [3, 5], [[b"3", b"4"], [b"5", b"6"]]),
        (tf.constant([[b"a"], [b"b"]]), [b"a", b"b"], [[b"a"], [b"b"]]),
    ],
)
def test_dense_column_has_first_values_and_all_texts(
    tensor: tf.Tensor, first: list[object], every: list[list[bytes]]
) -> None:
    texts = column("x", tensor)
    assert texts.values.numpy().tolist() == first
    assert texts.all_texts().to_list() == every


def test_all_values_are_split_at_the_separator() -> None:
    texts = make_column([b" a | b c||", b"a"], [], [b"|"], [b"a,b"])
    assert text_values.parts(texts, "|").to_list() == [[b"a", b"b c", b"a"], [], [], [b"a,b"]]
    assert text_values.parts(make_column([b"a, b,c"]), ", ").to_list() == [[b"a", b"b,c"]]


def test_numbers_are_not_split() -> None:
    texts = column("x", tf.constant([[-12, 3]], tf.int64))
    assert text_values.parts(texts, "-").to_list() == [[b"-12", b"3"]]


def test_words_consist_of_letters_and_digits_of_any_script() -> None:
    assert words([b"It's 20% off, NOW!"]) == [["it", "s", "20", "off", "now"]]
    assert words(["Łódź, ÉTÉ…Größe\u00a0価格٣".encode()]) == [["łódź", "été", "größe", "価格٣"]]
    # Combining marks of Devanagari belong to the words.
    assert words(["हिन्दी भाषा".encode()]) == [["हिन्दी", "भाषा"]]
    assert words([b"Red red"], lower=False) == [["Red", "red"]]
    assert words([b"... !"], [b""], []) == [[], [], []]


def test_ngrams_follow_the_words_and_stay_within_a_value() -> None:
    assert words([b"a b c", b"d"], [b"e"], ngrams=3) == [["a", "b", "c", "a b", "b c", "a b c", "d"], ["e"]]


def test_invalid_utf8_separates_words() -> None:
    assert words([b"caf\xe9 b\xffc \xc3"]) == [["caf", "b", "c"]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=12), max_size=3), min_size=1, max_size=4))
def test_any_bytes_are_accepted_and_words_are_not_empty(rows: list[list[bytes]]) -> None:
    result = words(*rows, ngrams=2)
    assert len(result) == len(rows)
    assert all(word.strip() for row in result for word in row)


def test_ids_are_truncated_and_padded() -> None:
    ids = tf.ragged.constant([[1, 2, 3], [], [4]], dtype=tf.int64)
    assert text_values.pad(ids, 2).numpy().tolist() == [[1, 2], [0, 0], [4, 0]]
    assert text_values.pad(ids, 4).shape == (3, 4)


def test_repeated_id_is_counted_once() -> None:
    ids = tf.ragged.constant([[1, 1, 0], [], [2]], dtype=tf.int64)
    assert text_values.multi_hot(ids, 4).numpy().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


TEXT = st.text("1:a", max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.tuples(TEXT, TEXT), st.tuples(TEXT, TEXT))
def test_joined_values_are_equal_only_if_all_columns_are_equal(
    first_row: tuple[str, str], second_row: tuple[str, str]
) -> None:
    whole = join(
        [
            column("a", tf.constant([first_row[0], second_row[0]])),
            column("b", tf.constant([first_row[1], second_row[1]])),
        ]
    )
    first, second = whole.values.numpy().tolist()
    assert (first == second) == (first_row == second_row)


def test_joined_value_is_missing_if_any_column_is_missing() -> None:
    whole = join([make_column([b"a"], [b"a"], []), make_column([b"b", b"c"], [], [b"b"])])
    assert whole.present.numpy().tolist() == [True, False, False]
    assert whole.values.numpy().tolist() == [b"1:a1:b", b"", b""]
    assert whole.dtype == "bytes"


WORDS: dict[str, Any] = {"lower": True, "ngrams": 1}


def test_distinct_words_count_once_per_example() -> None:
    read = text_values.words(make_column([b"Red shoes, red"], [b"red", b"hat red"], [], [b""], [b"..."]), **WORDS)
    texts = text_values.distinct_words(read).numpy().tolist()
    assert sorted(texts) == sorted([b"red", b"shoes", b"red", b"hat", b"", b""])
    nothing = text_values.words(make_column([], [b""]), **WORDS)
    assert text_values.distinct_words(nothing).numpy().tolist() == []


def test_weights_are_divided_by_the_root_of_their_squares() -> None:
    ids = tf.ragged.constant([[2, 1, 2, 0], [], [0], [3, 1, 2]], dtype=tf.int64)
    frequencies = tf.ragged.constant([[1.5, 4.0, 1.5, 9.0], [], [9.0], [2.0, 4.0, 1.5]], dtype=tf.float64)
    packed = text_values.tf_idf(ids, frequencies, 2)
    first, weights = weighted_ids.unpack(packed)
    assert (
        first.numpy().tolist() == weighted_ids.unpack_ids(packed.numpy()).tolist() == [[2, 1], [0, 0], [0, 0], [3, 1]]
    )
    # The first example contains the ID 2 twice: 3 and 4. The third ID of the last example is dropped.
    root = math.sqrt(20)
    float32_sum(1).assert_close(weights.numpy(), [[0.6, 0.8], [0, 0], [0, 0], [2 / root, 4 / root]])


@given(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.floats(2.0**-20, 1.0, width=32)), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_ids_and_weights_are_unpacked_as_they_were_packed(pairs: list[tuple[int, float]]) -> None:
    ids, weights = zip(*pairs, strict=True)
    unpacked = weighted_ids.unpack(weighted_ids.pack(tf.constant(ids, tf.int64), tf.constant(weights)))
    assert unpacked[0].numpy().tolist() == list(ids)
    float32_sum(1).assert_close(unpacked[1].numpy(), weights)
