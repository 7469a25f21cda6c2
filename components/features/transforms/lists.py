"""Operations on texts with several values, and on lists."""

from __future__ import annotations

import tensorflow as tf

from components.features import text_values
from components.features.analysis import InverseFrequencies, Vocabulary
from components.features.column import Column
from components.features.feature_spec import Dense, Ids
from components.features.operation import operation
from components.features.text_ops import MultiHot, Split, Text
from components.features.transforms.ids import look_up, look_up_frequencies


@operation(
    MultiHot,
    requirement=lambda op, column, name: Vocabulary(
        text_values.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    output_spec=lambda op, name, size: Dense(op.size + op.oov_buckets),
)
def _multi_hot(op: MultiHot, column: Column, path: tf.Tensor) -> tf.Tensor:
    # The actual size of the vocabulary is unknown while the graph is traced.
    return text_values.multi_hot(
        look_up(text_values.parts(column, op.separator), path, op.oov_buckets), op.size + op.oov_buckets
    )


@operation(
    Split,
    requirement=lambda op, column, name: Vocabulary(
        text_values.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    output_spec=lambda op, name, size: Ids(size(name) + op.rows, op.max_values, op.embedding),
)
def _split(op: Split, column: Column, path: tf.Tensor) -> tf.Tensor:
    return text_values.pad(look_up(text_values.parts(column, op.separator), path, op.oov_buckets) + 1, op.max_values)


@operation(
    Text,
    requirement=lambda op, column, name: _vocabulary_of_words(op, column, name),
    output_spec=lambda op, name, size: Ids(
        op.rows + (0 if op.vocabulary is None else size(name)),
        op.max_values,
        op.embedding,
        is_weighted=op.weighting is not None,
    ),
    hashed=lambda op, column: _select_hashed_words(op, column),
)
def _text(op: Text, column: Column, path: tf.Tensor) -> tf.Tensor:
    words = text_values.words(column, lower=op.lower, ngrams=op.ngrams)
    if op.weighting is not None:
        return text_values.tf_idf(*look_up_frequencies(words, path), op.max_values)
    if op.vocabulary is not None:
        return text_values.pad(look_up(words, path, 1) + 1, op.max_values)
    hashed = words.with_flat_values(tf.strings.to_hash_bucket_fast(words.flat_values, op.buckets))
    return text_values.pad(hashed + 1, op.max_values)


def _select_hashed_words(op: Text, column: Column) -> tf.Tensor | None:
    if op.vocabulary is not None:
        return None
    return text_values.words(column, lower=op.lower, ngrams=op.ngrams).flat_values


def _vocabulary_of_words(op: Text, column: Column, name: str) -> Vocabulary | None:
    if op.vocabulary is None:
        return None
    words = text_values.words(column, lower=op.lower, ngrams=op.ngrams)
    if op.weighting is not None:
        return InverseFrequencies(text_values.distinct_words(words), name, op.vocabulary)
    return Vocabulary(words.flat_values, name, op.vocabulary)
