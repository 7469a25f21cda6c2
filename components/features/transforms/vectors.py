"""The operation `vectors`: pretrained vectors of values and words."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.errors import InputError
from components.features import text_values
from components.features.column import Column, graph_function
from components.features.feature_spec import Dense
from components.features.operation import operation
from components.features.vector_file import read_vectors
from components.features.vector_ops import MOST_BYTES, Vectors

_BUCKETS = 2**63 - 1


@operation(Vectors, output_spec=lambda op, name, size: Dense(op.width))
def _vectors(op: Vectors, column: Column, _: None) -> tf.Tensor:
    hashes, vectors = _read(op.path, op.width)
    # A leading row of 0 is the vector of unknown values.
    rows = np.concatenate([np.zeros((1, op.width), np.float32), vectors])
    if not op.words:
        known = tf.where(column.present, _find(column.texts(), hashes), tf.constant(0, tf.int64))
        features = tf.gather(rows, known)
    else:
        words = text_values.words(column, lower=op.lower, ngrams=1)
        features = _average(words.with_flat_values(_find(words.flat_values, hashes)), rows)
    return tf.ensure_shape(features if op.width > 1 else features[:, 0], [None, *([op.width] if op.width > 1 else [])])


@functools.lru_cache(maxsize=1)
def _read(path: str, width: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Read the vectors of a file, ordered by the hashes of their values; int64 [values] and float32 [values, width]."""
    values, vectors = read_vectors(path, width)
    if vectors.nbytes > MOST_BYTES:
        raise InputError(
            f"{path}: expected at most {MOST_BYTES >> 20} MB of numbers, received {vectors.nbytes >> 20} MB",
            "keep the most frequent values, or use `vectors` of the operation vocab or text, whose size is limited",
        )
    with tf.init_scope(), tf.device("CPU:0"):
        hashes = tf.strings.to_hash_bucket_fast(values, _BUCKETS).numpy()
    order = np.argsort(hashes)
    return hashes[order], vectors[order]


def _find(texts: tf.Tensor, hashes: npt.NDArray[np.int64]) -> tf.Tensor:
    """Return the positions of texts among the values with these hashes, from 1, and 0 for other texts; int64 [n].

    Hashes have 63 bits, so a text that the file lacks equals one of a million values with a probability of 1e-13.
    """
    wanted = tf.strings.to_hash_bucket_fast(texts, _BUCKETS)
    # Do not use tf.searchsorted, which cannot reshape an empty batch.
    positions = tf.raw_ops.LowerBound(sorted_inputs=hashes[np.newaxis], values=wanted[tf.newaxis], out_type=tf.int64)[0]
    nearest = tf.minimum(positions, len(hashes) - 1)
    return tf.where(tf.equal(tf.gather(hashes, nearest), wanted), nearest + 1, tf.constant(0, tf.int64))


@graph_function
def _average(positions: tf.RaggedTensor, rows: tf.Tensor) -> tf.Tensor:
    """Return the mean rows of the positions above 0 of every example, float32 [batch, width]."""
    known = tf.ragged.boolean_mask(positions, positions > 0)
    gathered = known.with_flat_values(tf.gather(rows, known.flat_values))
    counts = tf.maximum(known.row_lengths(), 1)
    return tf.reduce_sum(gathered, axis=1) / tf.cast(counts, tf.float32)[:, tf.newaxis]
