"""What an example has more than one of in a column of texts: values between separators, words, sequences of words.

Everything is a RaggedTensor of strings, shape [batch, n].
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from components.features.column import Column, graph_function


def parts(column: Column, separator: str) -> Any:
    """All values of each example; of texts, what stands between separators, without blanks around it or empty ones."""
    texts = column.all_texts()
    return texts if column.dtype == "int" else _parts(texts, separator)


def words(column: Column, *, lower: bool, ngrams: int) -> Any:
    """The words of each text, then its sequences of 2 words and so on up to `ngrams`, joined by a blank.

    A word is what letters, their marks and digits of any script make up. Bytes that are no UTF-8 stand between words.
    """
    return _words(column.all_texts(), lower, ngrams)


def padded(ids: Any, count: int) -> Any:
    """The first ids of each example, with 0 where there are fewer: RaggedTensor of int64 → int64 [batch, count]."""
    return tf.ensure_shape(_padded(ids, count), [None, count])


def hot(ids: Any, width: int) -> Any:
    """1 for each id of an example, else 0: RaggedTensor of int64 in [0, width) → float32 [batch, width]."""
    return tf.ensure_shape(_hot(ids, width), [None, width])


@graph_function
def _parts(texts: Any, separator: str) -> Any:
    cut = _regrouped(texts, tf.strings.split(texts.flat_values, separator))
    stripped = cut.with_flat_values(tf.strings.strip(cut.flat_values))
    return tf.ragged.boolean_mask(stripped, tf.not_equal(stripped, ""))


@graph_function
def _words(texts: Any, lower: bool, ngrams: int) -> Any:
    valid = tf.strings.unicode_transcode(
        texts.flat_values, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" ")
    )
    if lower:
        valid = tf.strings.lower(valid, encoding="utf-8")
    found = tf.strings.split(tf.strings.regex_replace(valid, r"[^\pL\pM\pN]+", " "))
    if ngrams > 1:
        found = tf.strings.ngrams(found, tuple(range(1, ngrams + 1)), separator=" ")
    return _regrouped(texts, found)


def _regrouped(texts: Any, found: Any) -> Any:
    """What was found in each of the values, by example: [values, n] → [batch, n]."""
    return tf.RaggedTensor.from_row_splits(
        found.flat_values, tf.gather(found.row_splits, texts.row_splits), validate=False
    )


@graph_function
def _padded(ids: Any, count: int) -> Any:
    return ids.to_tensor(default_value=0, shape=[None, count])


@graph_function
def _hot(ids: Any, width: int) -> Any:
    places = tf.stack([ids.value_rowids(), ids.flat_values], axis=1)
    counts = tf.scatter_nd(places, tf.ones_like(ids.flat_values, tf.float32), tf.stack([ids.nrows(), width]))
    return tf.minimum(counts, 1.0)
