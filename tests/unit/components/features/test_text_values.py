"""Values, words and their sequences in a column of texts."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.features import text_values
from components.features.column import Column, column, join


def of(*rows: list[bytes]) -> Column:
    """Return a column with these values in its examples."""
    values = tf.constant([value for row in rows for value in row], tf.string)
    return column("x", tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows]).to_sparse())


def words(*rows: list[bytes], lower: bool = True, ngrams: int = 1) -> list[list[str]]:
    result = text_values.words(of(*rows), lower=lower, ngrams=ngrams).to_list()
    return [[word.decode() for word in row] for row in result]


def test_usual_operations_see_the_first_value() -> None:
    given = of([b"a", b"b"], [], [b"c"])
    assert given.values.numpy().tolist() == [b"a", b"", b"c"]
    assert given.present.numpy().tolist() == [True, False, True]
    assert given.all_texts().to_list() == [[b"a", b"b"], [], [b"c"]]


@pytest.mark.parametrize(
    ("tensor", "first", "every"),
    [
        (tf.constant([3, -1], tf.int64), [3, -1], [[b"3"], [b"-1"]]),
        (tf.constant([[3, 4], [5, 6]], tf.int64), [3, 5], [[b"3", b"4"], [b"5", b"6"]]),
        (tf.constant([[b"a"], [b"b"]]), [b"a", b"b"], [[b"a"], [b"b"]]),
    ],
)
def test_dense_column(tensor: tf.Tensor, first: list[object], every: list[list[bytes]]) -> None:
    given = column("x", tensor)
    assert given.values.numpy().tolist() == first
    assert given.all_texts().to_list() == every


def test_values_between_separators_of_all_values() -> None:
    given = of([b" a | b c||", b"a"], [], [b"|"], [b"a,b"])
    assert text_values.parts(given, "|").to_list() == [[b"a", b"b c", b"a"], [], [], [b"a,b"]]
    assert text_values.parts(of([b"a, b,c"]), ", ").to_list() == [[b"a", b"b,c"]]


def test_number_is_not_cut() -> None:
    given = column("x", tf.constant([[-12, 3]], tf.int64))
    assert text_values.parts(given, "-").to_list() == [[b"-12", b"3"]]


def test_words_are_letters_and_digits_of_any_script() -> None:
    assert words([b"It's 20% off, NOW!"]) == [["it", "s", "20", "off", "now"]]
    assert words(["Łódź, ÉTÉ…Größe\u00a0価格٣".encode()]) == [["łódź", "été", "größe", "価格٣"]]
    # Marks of Devanagari are part of their words.
    assert words(["हिन्दी भाषा".encode()]) == [["हिन्दी", "भाषा"]]
    assert words([b"Red red"], lower=False) == [["Red", "red"]]
    assert words([b"... !"], [b""], []) == [[], [], []]


def test_sequences_come_after_words_and_stay_within_a_value() -> None:
    assert words([b"a b c", b"d"], [b"e"], ngrams=3) == [["a", "b", "c", "a b", "b c", "a b c", "d"], ["e"]]


def test_invalid_utf8_separates_words() -> None:
    assert words([b"caf\xe9 b\xffc \xc3"]) == [["caf", "b", "c"]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=12), max_size=3), min_size=1, max_size=4))
def test_no_bytes_make_it_fail_and_words_are_utf8(rows: list[list[bytes]]) -> None:
    result = words(*rows, ngrams=2)
    assert len(result) == len(rows)
    assert all(word.strip() for row in result for word in row)


def test_ids_are_cut_and_filled_up() -> None:
    ids = tf.ragged.constant([[1, 2, 3], [], [4]], dtype=tf.int64)
    assert text_values.pad(ids, 2).numpy().tolist() == [[1, 2], [0, 0], [4, 0]]
    assert text_values.pad(ids, 4).shape == (3, 4)


def test_id_counts_once() -> None:
    ids = tf.ragged.constant([[1, 1, 0], [], [2]], dtype=tf.int64)
    assert text_values.multi_hot(ids, 4).numpy().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


TEXT = st.text("1:a", max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.tuples(TEXT, TEXT), st.tuples(TEXT, TEXT))
def test_joined_columns_are_equal_only_where_each_is(one: tuple[str, str], other: tuple[str, str]) -> None:
    whole = join([column("a", tf.constant([one[0], other[0]])), column("b", tf.constant([one[1], other[1]]))])
    first, second = whole.values.numpy().tolist()
    assert (first == second) == (one == other)


def test_joined_columns_are_missing_where_one_is() -> None:
    whole = join([of([b"a"], [b"a"], []), of([b"b", b"c"], [], [b"b"])])
    assert whole.present.numpy().tolist() == [True, False, False]
    assert whole.values.numpy().tolist() == [b"1:a1:b", b"", b""]
    assert whole.dtype == "bytes"
