"""Split the texts of a column into the values of an example: separated values, words, n-grams.

Unless stated otherwise, the results are RaggedTensors of strings, shape [batch, n].
"""

from __future__ import annotations

import tensorflow as tf

from components.features.column import Column, graph_function


def parts(column: Column, separator: str) -> tf.RaggedTensor:
    """Return all values of a column. Texts are split at the separator and stripped, and empty values are dropped."""
    texts = column.all_texts()
    return texts if column.dtype == "int" else _parts(texts, separator)


def words(column: Column, *, lower: bool, ngrams: int) -> tf.RaggedTensor:
    """Return the words of texts, then their sequences of 2 up to `ngrams` words, joined by a space.

    A word is a sequence of letters, combining marks and digits of any script. Bytes that are not UTF-8 separate words.
    """
    return _words(column.all_texts(), lower, ngrams)


def pad(ids: tf.RaggedTensor, count: int) -> tf.Tensor:
    """Truncate the IDs of examples to `count`, and pad them with 0; int64 of shape [batch, count]."""
    return tf.ensure_shape(_pad(ids, count), [None, count])


def multi_hot(ids: tf.RaggedTensor, width: int) -> tf.Tensor:
    """Return 1 for the IDs of an example, otherwise 0: int64 in [0, width) → float32 of shape [batch, width]."""
    return tf.ensure_shape(_multi_hot(ids, width), [None, width])


def events(column: Column, separator: str) -> tf.RaggedTensor:
    """Return all values of a column. Texts are split at the separator and stripped.

    Empty values are kept, unless the whole text is empty.
    """
    texts = column.all_texts()
    return texts if column.dtype == "int" else _events(texts, separator)


def latest(events: tf.RaggedTensor, count: int) -> tf.RaggedTensor:
    """Return the last values of examples, shape [batch, at most `count`]."""
    return _latest(events, count)


def whole_numbers(column: Column, separator: str, count: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Convert the last events to integers.

    Returns:
      The integers, RaggedTensor of int64 of shape [batch, at most `count`]; and whether an event is an integer, bool of
      shape [events].
    """
    if column.dtype == "int":
        values = latest(column.all_values(), count)
        return values, tf.ones_like(values.flat_values, tf.bool)
    texts = latest(events(column, separator), count)
    known = tf.strings.regex_full_match(texts.flat_values, r"-?[0-9]{1,18}")
    numbers = tf.strings.to_number(tf.where(known, texts.flat_values, "0"), tf.int64)
    return texts.with_flat_values(numbers), known


@graph_function
def _events(texts: tf.RaggedTensor, separator: str) -> tf.RaggedTensor:
    texts = tf.ragged.boolean_mask(texts, tf.not_equal(tf.strings.strip(texts), ""))
    split = _group_by_example(texts, tf.strings.split(texts.flat_values, separator))
    return split.with_flat_values(tf.strings.strip(split.flat_values))


@graph_function
def _latest(events: tf.RaggedTensor, count: int) -> tf.RaggedTensor:
    return events[:, -count:]


@graph_function
def _parts(texts: tf.RaggedTensor, separator: str) -> tf.RaggedTensor:
    split = _group_by_example(texts, tf.strings.split(texts.flat_values, separator))
    stripped = split.with_flat_values(tf.strings.strip(split.flat_values))
    return tf.ragged.boolean_mask(stripped, tf.not_equal(stripped, ""))


@graph_function
def _words(texts: tf.RaggedTensor, lower: bool, ngrams: int) -> tf.RaggedTensor:
    valid = tf.strings.unicode_transcode(
        texts.flat_values, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" ")
    )
    if lower:
        valid = tf.strings.lower(valid, encoding="utf-8")
    tokens = tf.strings.split(tf.strings.regex_replace(valid, r"[^\pL\pM\pN]+", " "))
    if ngrams > 1:
        tokens = tf.strings.ngrams(tokens, tuple(range(1, ngrams + 1)), separator=" ")
    return _group_by_example(texts, tokens)


def _group_by_example(texts: tf.RaggedTensor, parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Group the parts of texts by example, shape [texts, n] → [batch, n]."""
    return tf.RaggedTensor.from_row_splits(
        parts.flat_values, tf.gather(parts.row_splits, texts.row_splits), validate=False
    )


@graph_function
def _pad(ids: tf.RaggedTensor, count: int) -> tf.Tensor:
    return ids.to_tensor(default_value=0, shape=[None, count])


@graph_function
def _multi_hot(ids: tf.RaggedTensor, width: int) -> tf.Tensor:
    positions = tf.stack([ids.value_rowids(), ids.flat_values], axis=1)
    counts = tf.scatter_nd(positions, tf.ones_like(ids.flat_values, tf.float32), tf.stack([ids.nrows(), width]))
    return tf.minimum(counts, 1.0)
