"""Operations that convert values to IDs: buckets, vocabularies, hashes."""

from __future__ import annotations

import contextlib

import tensorflow as tf
import tensorflow_transform as tft

from components.features.analysis import AgedVocabulary, Quantiles, Vocabulary
from components.features.column import Column, FirstValues
from components.features.config import Bucketize, Cross, Hash, Hashed, Vocab
from components.features.feature_spec import Ids, VocabularySize
from components.features.operation import operation
from components.features.sequence_ops import EventSequence


@operation(
    Bucketize,
    requirement=lambda op, column, name: Quantiles(column.mark_missing(column.numbers()), op.buckets),
    output_spec=lambda op, name, size: Ids(op.rows, width=op.embedding, ordered=True),
    elementwise=True,
)
def _bucketize(_op: Bucketize, column: FirstValues, boundaries: tf.Tensor) -> tf.Tensor:
    return with_missing(_bucket(column.numbers(), boundaries), column.present)


@operation(
    Vocab,
    requirement=lambda op, column, name: _vocabulary(op, column, name),
    output_spec=lambda op, name, size: Ids(size(name) + op.rows, width=op.embedding),
)
def _vocab(op: Vocab, column: Column, path: tf.Tensor) -> tf.Tensor:
    return with_missing(tft.apply_vocabulary(column.texts(), path, num_oov_buckets=op.oov_buckets), column.present)


def _vocabulary(op: Vocab, column: Column, name: str) -> Vocabulary:
    texts = column.where_present(column.texts())
    # The text of a float differs from the text of the number in the data, see `components.data.decimals`.
    counted = column.name if column.is_raw and column.dtype != "float" else None
    if op.keep_runs is not None:
        return AgedVocabulary(texts, name, op.size, op.min_frequency, column=counted, keep_runs=op.keep_runs)
    return Vocabulary(texts, name, op.size, op.min_frequency, column=counted)


def _spec_of_hashed(op: Hashed, name: str, size: VocabularySize) -> Ids:
    return Ids(op.rows + (size(name) if op.min_frequency > 1 else 0), width=op.embedding)


def _present_texts(_op: Hashed, column: Column) -> tf.Tensor:
    return column.where_present(column.texts())


def _hash(op: Hashed, column: FirstValues, path: tf.Tensor | None) -> tf.Tensor:
    return with_missing(bucket_ids(op, column.texts(), path), column.present)


for _hashed_op in (Hash, Cross):
    operation(
        _hashed_op,
        requirement=lambda op, column, name: _frequent_texts(op, column, name),
        output_spec=_spec_of_hashed,
        hashed=_present_texts,
        # Frequent buckets need one vocabulary per column.
        elementwise=lambda op: op.min_frequency == 1,
    )(_hash)


def _frequent_texts(op: Hashed, column: Column, name: str) -> Vocabulary | None:
    return None if op.min_frequency == 1 else frequent_buckets(op, _present_texts(op, column), name)


def frequent_buckets(op: Hashed | EventSequence, texts: tf.Tensor, name: str) -> Vocabulary | None:
    """Return the required vocabulary of buckets with at least `min_frequency` texts; None if all buckets have IDs."""
    if op.min_frequency == 1 or op.buckets is None:
        return None
    return Vocabulary(_bucket_names(texts, op.buckets), name, op.buckets, op.min_frequency)


def bucket_ids(op: Hashed | EventSequence, texts: tf.Tensor, path: tf.Tensor | None) -> tf.Tensor:
    """Return the IDs of hashed texts, from 0: the bucket, or its rank among the frequent buckets; int64, shape [n]."""
    if op.min_frequency == 1:
        return tf.strings.to_hash_bucket_fast(texts, op.buckets)
    return tft.apply_vocabulary(_bucket_names(texts, op.buckets), path, num_oov_buckets=1)


def _bucket_names(texts: tf.Tensor, buckets: int | None) -> tf.Tensor:
    return tf.strings.as_string(tf.strings.to_hash_bucket_fast(texts, buckets))


def look_up(texts: tf.RaggedTensor, path: tf.Tensor, oov_buckets: int) -> tf.RaggedTensor:
    """Look up the IDs of strings in a vocabulary; IDs start at 0."""
    return texts.with_flat_values(tft.apply_vocabulary(texts.flat_values, path, num_oov_buckets=oov_buckets))


def look_up_frequencies(words: tf.RaggedTensor, path: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Look up words in a file of InverseFrequencies.

    Returns:
      The IDs, int64 from 1, and the inverse document frequencies, float64; both are 0 for a word that the file lacks.
    """

    def look_up(values: tf.Tensor, file: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # As in TFT: create the tables once instead of in every call of the graph, if the path is known.
        with contextlib.nullcontext() if tf.is_symbolic_tensor(file) else tf.init_scope():
            tables = [
                tf.lookup.StaticHashTable(
                    tf.lookup.TextFileInitializer(file, tf.string, 0, dtype, index, delimiter="\t"), default
                )
                for dtype, index, default in (
                    (tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, -1),
                    (tf.float64, 1, 0.0),
                )
            ]
            size = tables[0].size()
        ids, frequencies = (table.lookup(values) for table in tables)
        # TFT notes the range of the result, which must be int64.
        return tf.stack([ids + 1, tf.bitcast(frequencies, tf.int64)], axis=1), size

    both = tft.apply_vocabulary(words.flat_values, path, lookup_fn=look_up)
    return words.with_flat_values(both[:, 0]), words.with_flat_values(tf.bitcast(both[:, 1], tf.float64))


def _bucket(numbers: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Return the buckets of numbers, int64 of shape [batch, columns]; boundaries are [boundaries, columns]."""
    # Do not use tf.searchsorted, which cannot reshape an empty batch.
    buckets = tf.raw_ops.UpperBound(
        sorted_inputs=tf.transpose(boundaries), values=tf.transpose(numbers), out_type=tf.int64
    )
    return tf.transpose(buckets)


def with_missing(ids: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    """Return the IDs + 1, and 0 for a missing value; int64, same shape."""
    return tf.where(present, ids + 1, tf.constant(0, tf.int64))
