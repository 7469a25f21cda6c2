"""The feature operations inside the transform graph, and what each of them hands to the model.

An operation is an entry of `OPERATIONS`: one function that transforms a column, through TFT so that training and
serving share the graph, and one that says what the model gets to read. What each does with missing values stands
in its section in `config.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features.column import Column, dense
from components.features.config import Bucketize, Hash, Image, Log, Op, Vocab, ZScore


@dataclass(frozen=True)
class Dense:
    """A transformed feature that the model reads as numbers: float32, shape [batch] or [batch, width]."""

    width: int = 1


@dataclass(frozen=True)
class Ids:
    """A transformed feature that the model embeds: int64 in [0, cardinality), shape [batch]."""

    cardinality: int


VocabularySize = Callable[[str], int]


@dataclass(frozen=True)
class Operation:
    """What an operation does: `transform(op, column, name)` in the graph, `gives(op, name, vocabulary_size)` after."""

    transform: Callable[[Any, Column, str], Any]
    gives: Callable[[Any, str, VocabularySize], Dense | Ids]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)


def operation(
    op: type[AnyOp], gives: Callable[[AnyOp, str, VocabularySize], Dense | Ids]
) -> Callable[[Callable[[AnyOp, Column, str], Any]], Callable[[AnyOp, Column, str], Any]]:
    """Registers the function below it as what `op` does."""

    def register(transform: Callable[[AnyOp, Column, str], Any]) -> Callable[[AnyOp, Column, str], Any]:
        OPERATIONS[op] = Operation(transform, gives)
        return transform

    return register


def apply(op: Op, column: Column, name: str) -> Any:
    """The feature that `op` makes of a column.

    Raises:
      InputError: the operation does not take the column's dtype.
    """
    if column.dtype not in op.takes:
        takes = " or ".join(sorted(op.takes))
        raise InputError(
            f"features.columns.{column.name}: {op.op} takes {takes}, and the column holds {column.dtype}",
            "choose another operation for it; docs/config.md lists what each takes",
        )
    return OPERATIONS[type(op)].transform(op, column, name)


@operation(ZScore, gives=lambda op, name, size: Dense())
def _z_score(_op: ZScore, column: Column, name: str) -> Any:
    return dense(tft.scale_to_z_score(column.sparse(column.numbers()), name=name), 0.0)


@operation(Log, gives=lambda op, name, size: Dense())
def _log(_op: Log, column: Column, name: str) -> Any:
    numbers = column.numbers()
    logs = tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))
    return dense(tft.scale_to_z_score(column.sparse(logs), name=name), 0.0)


@operation(Bucketize, gives=lambda op, name, size: Ids(op.buckets + 1))
def _bucketize(op: Bucketize, column: Column, name: str) -> Any:
    return _ids(tft.bucketize(column.sparse(column.numbers()), op.buckets, name=name))


@operation(Vocab, gives=lambda op, name, size: Ids(size(name) + op.oov_buckets + 1))
def _vocab(op: Vocab, column: Column, name: str) -> Any:
    return _ids(
        tft.compute_and_apply_vocabulary(
            column.sparse(column.texts()),
            top_k=op.size,
            frequency_threshold=op.min_frequency if op.min_frequency > 1 else None,
            num_oov_buckets=op.oov_buckets,
            vocab_filename=name,
            name=name,
        )
    )


@operation(Hash, gives=lambda op, name, size: Ids(op.buckets + 1))
def _hash(op: Hash, column: Column, _name: str) -> Any:
    hashed = tf.strings.to_hash_bucket_fast(column.texts(), op.buckets)
    return tf.where(column.present, hashed + 1, tf.zeros_like(hashed))


@operation(Image, gives=lambda op, name, size: Dense(op.height * op.width * op.channels))
def _image(op: Image, column: Column, name: str) -> Any:
    shape = [op.height, op.width, op.channels]

    def pixels(encoded: Any) -> Any:
        picture = tf.io.decode_image(encoded, channels=op.channels, expand_animations=False)
        return tf.ensure_shape(tf.image.resize(tf.cast(picture, tf.float32), shape[:2], antialias=True), shape) / 255.0

    def one(given: Any) -> Any:
        encoded, present = given
        return tf.cond(present, lambda: pixels(encoded), lambda: tf.zeros(shape))

    pictures = tf.map_fn(one, (column.values, column.present), fn_output_signature=tf.TensorSpec(shape, tf.float32))
    return tf.reshape(pictures, [-1, op.height * op.width * op.channels], name=name)


def _ids(sparse: Any) -> Any:
    """Ids counted from 1, with 0 for a missing value: int64, shape [batch]."""
    ids = tf.SparseTensor(sparse.indices, tf.cast(sparse.values, tf.int64) + 1, sparse.dense_shape)
    return dense(ids, 0)
