"""The feature operations inside the transform graph, and what each of them hands to the model.

An operation is an entry of `OPERATIONS`: one function that transforms a column, through TFT so that training and
serving share the graph, and one that says what the model gets to read. What each does with missing values stands
in its section in `config.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features.analysis import Edges, Moments, Need, Quantiles, Vocabulary
from components.features.column import Column, graph_function
from components.features.config import (
    Bucketize,
    Clip,
    Hash,
    Image,
    Log,
    MinMax,
    Missing,
    Op,
    PassThrough,
    PiecewiseLinear,
    Vocab,
    ZScore,
)


@dataclass(frozen=True)
class Dense:
    """A transformed feature that the model reads as numbers: float32, shape [batch] or [batch, width]."""

    width: int = 1


@dataclass(frozen=True)
class Ids:
    """A transformed feature that the model embeds: int64 in [0, cardinality), shape [batch]."""

    cardinality: int


VocabularySize = Callable[[str], int]
"""Number of entries of a vocabulary, by its name."""


@dataclass(frozen=True)
class Operation:
    """What an operation does.

    Attributes:
      transform: (op, column, answer) → the feature; `answer` is what the analysis found, or None if nothing was asked.
      needs: (op, column, feature's name) → what has to be known of the training split, or None.
      gives: (op, feature's name, vocabulary sizes) → what the model reads.
    """

    transform: Callable[[Any, Column, Any], Any]
    needs: Callable[[Any, Column, str], Need | None]
    gives: Callable[[Any, str, VocabularySize], Dense | Ids]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)


def operation(
    op: type[AnyOp],
    *,
    gives: Callable[[AnyOp, str, VocabularySize], Dense | Ids],
    needs: Callable[[AnyOp, Column, str], Need | None] = lambda op, column, name: None,
) -> Callable[[Callable[[AnyOp, Column, Any], Any]], Callable[[AnyOp, Column, Any], Any]]:
    """Registers the function below it as what `op` does."""

    def register(transform: Callable[[AnyOp, Column, Any], Any]) -> Callable[[AnyOp, Column, Any], Any]:
        OPERATIONS[op] = Operation(transform, needs, gives)
        return transform

    return register


def need(op: Op, column: Column, name: str) -> Need | None:
    """What `op` has to know of the training split to make the feature `name` of a column.

    Raises:
      InputError: the operation does not take the column's dtype.
    """
    if column.dtype not in op.takes:
        takes = " or ".join(sorted(op.takes))
        raise InputError(
            f"features.columns.{column.name}: {op.op} takes {takes}, and the column holds {column.dtype}",
            "choose another operation for it; docs/config.md lists what each takes",
        )
    return OPERATIONS[type(op)].needs(op, column, name)


def apply(op: Op, column: Column, answer: Any) -> Any:
    """The feature that `op` makes of a column, given the answer to its need."""
    return OPERATIONS[type(op)].transform(op, column, answer)


@operation(
    ZScore,
    needs=lambda op, column, name: Moments(column.known(column.numbers())),
    gives=lambda op, name, size: Dense(),
)
def _z_score(_op: ZScore, column: Column, moments: Any) -> Any:
    return _scaled(column.numbers(), column.present, moments)


@operation(
    Log,
    needs=lambda op, column, name: Moments(column.known(_logs(column.numbers()))),
    gives=lambda op, name, size: Dense(),
)
def _log(_op: Log, column: Column, moments: Any) -> Any:
    return _scaled(_logs(column.numbers()), column.present, moments)


@operation(
    MinMax,
    needs=lambda op, column, name: Moments(column.known(column.numbers())),
    gives=lambda op, name, size: Dense(),
)
def _min_max(_op: MinMax, column: Column, moments: Any) -> Any:
    return _between(column.numbers(), column.present, moments)


@operation(
    Clip,
    needs=lambda op, column, name: Moments(column.known(_clipped(op, column))),
    gives=lambda op, name, size: Dense(),
)
def _clip(op: Clip, column: Column, moments: Any) -> Any:
    return _scaled(_clipped(op, column), column.present, moments)


def _clipped(op: Clip, column: Column) -> Any:
    low, high = (-math.inf if op.low is None else op.low), (math.inf if op.high is None else op.high)
    return tf.clip_by_value(column.numbers(), low, high)


@operation(PassThrough, gives=lambda op, name, size: Dense())
def _pass_through(_op: PassThrough, column: Column, _answer: None) -> Any:
    # Where it is missing, it is 0 already.
    return column.numbers()


@operation(Missing, gives=lambda op, name, size: Dense())
def _missing(_op: Missing, column: Column, _answer: None) -> Any:
    return 1.0 - tf.cast(column.present, tf.float32)


@operation(
    PiecewiseLinear,
    needs=lambda op, column, name: Edges(column.known(column.numbers()), op.bins),
    gives=lambda op, name, size: Dense(op.bins),
)
def _piecewise_linear(op: PiecewiseLinear, column: Column, edges: Any) -> Any:
    return tf.ensure_shape(_bins(column.numbers(), column.present, edges), [None, op.bins])


@operation(
    Bucketize,
    needs=lambda op, column, name: Quantiles(column.known(column.numbers()), op.buckets),
    gives=lambda op, name, size: Ids(op.buckets + 1),
)
def _bucketize(_op: Bucketize, column: Column, boundaries: Any) -> Any:
    return _ids(_bucket(column.numbers(), boundaries), column.present)


@operation(
    Vocab,
    needs=lambda op, column, name: Vocabulary(column.known(column.texts()), name, op.size, op.min_frequency),
    gives=lambda op, name, size: Ids(size(name) + op.oov_buckets + 1),
)
def _vocab(op: Vocab, column: Column, path: Any) -> Any:
    return _ids(tft.apply_vocabulary(column.texts(), path, num_oov_buckets=op.oov_buckets), column.present)


@operation(Hash, gives=lambda op, name, size: Ids(op.buckets + 1))
def _hash(op: Hash, column: Column, _answer: None) -> Any:
    return _ids(tf.strings.to_hash_bucket_fast(column.texts(), op.buckets), column.present)


@operation(Image, gives=lambda op, name, size: Dense(op.height * op.width * op.channels))
def _image(op: Image, column: Column, _answer: None) -> Any:
    shape = [op.height, op.width, op.channels]

    def pixels(encoded: Any) -> Any:
        picture = tf.io.decode_image(encoded, channels=op.channels, expand_animations=False)
        return tf.ensure_shape(tf.image.resize(tf.cast(picture, tf.float32), shape[:2], antialias=True), shape) / 255.0

    def one(given: Any) -> Any:
        encoded, present = given
        return tf.cond(present, lambda: pixels(encoded), lambda: tf.zeros(shape))

    pictures = tf.map_fn(one, (column.values, column.present), fn_output_signature=tf.TensorSpec(shape, tf.float32))
    return tf.reshape(pictures, [-1, op.height * op.width * op.channels])


@graph_function
def _logs(numbers: Any) -> Any:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


@graph_function
def _scaled(numbers: Any, present: Any, moments: Any) -> Any:
    """Numbers less their mean, in standard deviations; 0 where the value is missing."""
    return tf.where(present, (numbers - moments[0]) / moments[1], tf.zeros_like(numbers))


@graph_function
def _between(numbers: Any, present: Any, moments: Any) -> Any:
    """Where numbers lie between the least and the greatest, in [0, 1]; 0 where the value is missing."""
    shares = tf.math.divide_no_nan(numbers - moments[2], moments[3] - moments[2])
    return tf.where(present, tf.clip_by_value(shares, 0.0, 1.0), tf.zeros_like(numbers))


@graph_function
def _bins(numbers: Any, present: Any, edges: Any) -> Any:
    """How far numbers have come in each bin, in [0, 1]: [batch] → [batch, bins]; 0 where the value is missing."""
    low, width = edges[:-1], edges[1:] - edges[:-1]
    # A bin of no width is one that nothing lies in.
    come = tf.math.divide_no_nan(numbers[:, tf.newaxis] - low, width)
    return tf.where(present[:, tf.newaxis], tf.clip_by_value(come, 0.0, 1.0), 0.0)


@graph_function
def _bucket(numbers: Any, boundaries: Any) -> Any:
    return tf.searchsorted(boundaries, numbers, side="right", out_type=tf.int64)


@graph_function
def _ids(ids: Any, present: Any) -> Any:
    """Ids counted from 1, with 0 for a missing value: int64, shape [batch]."""
    return tf.where(present, ids + 1, tf.zeros_like(ids))
