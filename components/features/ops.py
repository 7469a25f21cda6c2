"""The feature operations inside the transform graph, and what each of them hands to the model.

An operation is an entry of `OPERATIONS`: one function that transforms a column, through TFT so that training and
serving share the graph, and one that says what the model gets to read. What each does with missing values stands
in its section in `config.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features import dates, texts
from components.features.analysis import Edges, Moments, Need, Quantiles, Vocabulary
from components.features.column import Column, graph_function, joined
from components.features.config import (
    SPANS,
    Bucketize,
    Clip,
    Cross,
    Cyclical,
    DatePart,
    Feature,
    Hash,
    Image,
    Log,
    MinMax,
    Missing,
    MultiHot,
    Op,
    PassThrough,
    PiecewiseLinear,
    Split,
    Text,
    Vocab,
    ZScore,
)


@dataclass(frozen=True)
class Dense:
    """A transformed feature that the model reads as numbers: float32, shape [batch] or [batch, width]."""

    width: int = 1


@dataclass(frozen=True)
class Ids:
    """A transformed feature that the model embeds: int64 in [0, cardinality), shape [batch] or [batch, values].

    Of several values the model reads the mean of their embeddings; 0 there is no value, and 0 alone a missing one.

    Attributes:
      cardinality: ids there are.
      values: how many an example may have.
      width: of the embedding; None: the model decides.
    """

    cardinality: int
    values: int = 1
    width: int | None = None


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


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """The column that a feature is made of: its only one, or its several joined.

    Raises:
      InputError: the operation does not take a column's dtype.
    """
    given = [columns[name] for name in feature.columns]
    for column in given:
        if column.dtype not in feature.op.takes:
            place = ".".join(("features", *map(str, feature.key[:2])))
            takes = " or ".join(sorted(feature.op.takes))
            raise InputError(
                f"{place}: {feature.op.op} takes {takes}, and the column {column.name} holds {column.dtype}",
                "choose another operation for it; docs/config.md lists what each takes",
            )
    return given[0] if len(given) == 1 else joined(given)


def need(op: Op, column: Column, name: str) -> Need | None:
    """What `op` has to know of the training split to make the feature `name` of a column."""
    return OPERATIONS[type(op)].needs(op, column, name)


def apply(op: Op, column: Column, answer: Any) -> Any:
    """The feature that `op` makes of a column, given the answer to its need."""
    return OPERATIONS[type(op)].transform(op, column, answer)


def gives(feature: Feature, size: VocabularySize) -> Dense | Ids:
    """What the model reads of a feature."""
    return OPERATIONS[type(feature.op)].gives(feature.op, feature.name, size)


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
    gives=lambda op, name, size: Ids(op.rows, width=op.embedding),
)
def _bucketize(_op: Bucketize, column: Column, boundaries: Any) -> Any:
    return _ids(_bucket(column.numbers(), boundaries), column.present)


@operation(
    Vocab,
    needs=lambda op, column, name: Vocabulary(column.known(column.texts()), name, op.size, op.min_frequency),
    gives=lambda op, name, size: Ids(size(name) + op.rows, width=op.embedding),
)
def _vocab(op: Vocab, column: Column, path: Any) -> Any:
    return _ids(tft.apply_vocabulary(column.texts(), path, num_oov_buckets=op.oov_buckets), column.present)


@operation(Hash, gives=lambda op, name, size: Ids(op.rows, width=op.embedding))
def _hash(op: Hash, column: Column, _answer: None) -> Any:
    return _hashed(column, op.buckets)


@operation(Cross, gives=lambda op, name, size: Ids(op.rows, width=op.embedding))
def _cross(op: Cross, column: Column, _answer: None) -> Any:
    return _hashed(column, op.buckets)


def _hashed(column: Column, buckets: int) -> Any:
    return _ids(tf.strings.to_hash_bucket_fast(column.texts(), buckets), column.present)


@operation(
    MultiHot,
    needs=lambda op, column, name: Vocabulary(
        texts.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    gives=lambda op, name, size: Dense(op.size + op.oov_buckets),
)
def _multi_hot(op: MultiHot, column: Column, path: Any) -> Any:
    # A width that followed from the vocabulary would be unknown while the graph is made.
    return texts.hot(_looked_up(texts.parts(column, op.separator), path, op.oov_buckets), op.size + op.oov_buckets)


@operation(
    Split,
    needs=lambda op, column, name: Vocabulary(
        texts.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    gives=lambda op, name, size: Ids(size(name) + op.rows, op.max_values, op.embedding),
)
def _split(op: Split, column: Column, path: Any) -> Any:
    return texts.padded(_looked_up(texts.parts(column, op.separator), path, op.oov_buckets) + 1, op.max_values)


@operation(
    Text,
    needs=lambda op, column, name: _vocabulary_of_words(op, column, name),
    gives=lambda op, name, size: Ids(
        op.rows + (0 if op.vocabulary is None else size(name)), op.max_values, op.embedding
    ),
)
def _text(op: Text, column: Column, path: Any) -> Any:
    words = texts.words(column, lower=op.lower, ngrams=op.ngrams)
    if op.vocabulary is not None:
        return texts.padded(_looked_up(words, path, 1) + 1, op.max_values)
    hashed = words.with_flat_values(tf.strings.to_hash_bucket_fast(words.flat_values, op.buckets))
    return texts.padded(hashed + 1, op.max_values)


def _vocabulary_of_words(op: Text, column: Column, name: str) -> Vocabulary | None:
    if op.vocabulary is None:
        return None
    return Vocabulary(texts.words(column, lower=op.lower, ngrams=op.ngrams).flat_values, name, op.vocabulary)


def _looked_up(found: Any, path: Any, oov_buckets: int) -> Any:
    """The ids of a RaggedTensor of strings, counted from 0."""
    return found.with_flat_values(tft.apply_vocabulary(found.flat_values, path, num_oov_buckets=oov_buckets))


@operation(
    DatePart,
    needs=lambda op, column, name: _moments_of_years(op, column),
    gives=lambda op, name, size: Ids(op.rows, width=op.embedding) if op.part in SPANS else Dense(),
)
def _date_part(op: DatePart, column: Column, moments: Any) -> Any:
    value, present = dates.part_of(column, op.part, op.unit)
    if op.part in SPANS:
        return _ids(value - SPANS[op.part].first, present)
    return _scaled(tf.cast(value, tf.float32), present, moments)


def _moments_of_years(op: DatePart, column: Column) -> Moments | None:
    if op.part in SPANS:
        return None
    value, present = dates.part_of(column, op.part, op.unit)
    return Moments(tf.boolean_mask(tf.cast(value, tf.float32), present))


@operation(Cyclical, gives=lambda op, name, size: Dense(2))
def _cyclical(op: Cyclical, column: Column, _answer: None) -> Any:
    return tf.ensure_shape(_circle(column.values, column.present, op.period), [None, 2])


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
def _circle(values: Any, present: Any, period: float) -> Any:
    """The sin and cos of where values are in their period: [batch] → [batch, 2]; 0 where the value is missing."""
    # In double precision, or seconds since 1970 would be minutes off.
    turn = 2 * math.pi * (tf.cast(values, tf.float64) % period) / period
    both = tf.cast(tf.stack([tf.sin(turn), tf.cos(turn)], axis=1), tf.float32)
    return tf.where(present[:, tf.newaxis], both, 0.0)


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
