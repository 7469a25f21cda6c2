"""Split the texts of a column into the values of an example: separated values, words, n-grams.

Unless stated otherwise, the results are RaggedTensors of strings, shape [batch, n].
"""

from __future__ import annotations

import tensorflow as tf

from components.features import weighted_ids
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


def distinct_words(texts: tf.RaggedTensor) -> tf.Tensor:
    """Return the distinct words of all examples that contain words, then an empty text per such example.

    Args:
      texts: Words of the examples, see `words`; shape [batch, n].

    Returns:
      A word that m examples contain occurs m times. String, shape [distinct words of the examples + examples].
    """
    return _distinct_words(texts)


def tf_idf(ids: tf.RaggedTensor, frequencies: tf.RaggedTensor, count: int) -> tf.Tensor:
    """Weight the first `count` distinct IDs of examples by TF-IDF, and pad them with 0.

    Args:
      ids: IDs of the words, int64 of shape [batch, n]. The ID 0 is ignored.
      frequencies: Inverse document frequencies of the words; float64, same shape.
      count: Number of values of an example in the result.

    Returns:
      Packed IDs and weights, see `weighted_ids`; int64 of shape [batch, count]. The sum of the squares of an example's
      weights is 1, or 0 if all IDs are 0.
    """
    return tf.ensure_shape(_tf_idf(ids, frequencies, count), [None, count])


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


@graph_function
def _distinct_words(texts: tf.RaggedTensor) -> tf.Tensor:
    words, numbers = tf.unique(texts.flat_values, tf.int64)
    size = tf.size(words, tf.int64)
    pairs = tf.unique(texts.value_rowids() * size + numbers).y
    rows = tf.math.count_nonzero(texts.row_lengths())
    return tf.concat([tf.gather(words, pairs % tf.maximum(size, 1)), tf.fill([rows], "")], axis=0)


_MOST_IDS = 1 << 31


@graph_function
def _tf_idf(ids: tf.RaggedTensor, frequencies: tf.RaggedTensor, count: int) -> tf.Tensor:
    is_known = ids.flat_values > 0
    pairs = tf.boolean_mask(ids.value_rowids() * _MOST_IDS + ids.flat_values, is_known)
    # The distinct pairs are in the order of their first occurrences, so the examples stay in order.
    distinct, numbers = tf.unique(pairs)
    weights = tf.math.unsorted_segment_sum(
        tf.boolean_mask(frequencies.flat_values, is_known), numbers, tf.size(distinct)
    )
    first = tf.RaggedTensor.from_value_rowids(
        tf.stack([distinct % _MOST_IDS, tf.bitcast(weights, tf.int64)], axis=1),
        distinct // _MOST_IDS,
        nrows=ids.nrows(),
        validate=False,
    )[:, :count]
    kept_ids, kept = first.flat_values[:, 0], tf.bitcast(first.flat_values[:, 1], tf.float64)
    rows = first.value_rowids()
    norms = tf.sqrt(tf.math.unsorted_segment_sum(kept * kept, rows, ids.nrows()))
    packed = weighted_ids.pack(kept_ids, kept / tf.gather(norms, rows))
    return first.with_flat_values(packed).to_tensor(default_value=0, shape=[None, count])


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
