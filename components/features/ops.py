"""The feature operations in the transform graph, and the shape of their outputs for the model.

An operation is an entry of `OPERATIONS`: a function that transforms a column, through TFT so that training and serving
share the graph, and functions that return its requirement on the analysis and its output spec. How it treats missing
values is documented in its settings class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features import dates, text_values
from components.features.analysis import Edges, Moments, Quantiles, Requirement, Vocabulary
from components.features.base_op import Op
from components.features.column import Column, graph_function, joined
from components.features.config import (
    Bucketize,
    Clip,
    Cross,
    Cyclical,
    Feature,
    Hash,
    Log,
    MinMax,
    Missing,
    PassThrough,
    PiecewiseLinear,
    Vocab,
    ZScore,
)
from components.features.date_ops import SPANS, DatePart
from components.features.image_ops import Image
from components.features.text_ops import MultiHot, Split, Text


@dataclass(frozen=True)
class Dense:
    """The spec of a feature of numbers: float32, shape [batch] if the width is 1, else [batch, width].

    Attributes:
      width: how many numbers.
      ordered: whether the number, or the sum of the numbers, never decreases as the column's value increases.
      image: height, width and channels if the numbers are the pixels of an image, row by row. The transformed feature
        is then the encoded image, string [batch], from which `images.decoded` computes the numbers.
    """

    width: int = 1
    ordered: bool = False
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Ids:
    """The spec of a feature of ids to embed: int64 in [0, cardinality), shape [batch] or [batch, values].

    The embeddings of several values are averaged; there 0 is padding, else it is the id of a missing value.

    Attributes:
      cardinality: number of ids.
      values: greatest number of values of an example.
      width: width of the embedding; None: the model decides.
      ordered: whether a greater id stands for a greater value.
    """

    cardinality: int
    values: int = 1
    width: int | None = None
    ordered: bool = False


VocabularySize = Callable[[str], int]
"""Name of a vocabulary → number of its entries."""


@dataclass(frozen=True)
class Operation:
    """The functions of an operation.

    Attributes:
      transform: (settings, column, result of the analysis or None) → the feature; of an image, the encoded one.
      requirement: (settings, column, feature's name) → the statistics of the training split that it uses, or None.
      output_spec: (settings, feature's name, vocabulary sizes) → the feature's dtype and shape.
    """

    transform: Callable[[Any, Column, Any], tf.Tensor]
    requirement: Callable[[Any, Column, str], Requirement | None]
    output_spec: Callable[[Any, str, VocabularySize], Dense | Ids]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)
Transform: TypeAlias = Callable[[AnyOp, Column, Any], tf.Tensor]


def operation(
    op: type[AnyOp],
    *,
    output_spec: Callable[[AnyOp, str, VocabularySize], Dense | Ids],
    requirement: Callable[[AnyOp, Column, str], Requirement | None] = lambda op, column, name: None,
) -> Callable[[Transform[AnyOp]], Transform[AnyOp]]:
    """Registers the decorated function as the transform of an operation; see Operation.

    Args:
      op: the settings class.
      output_spec: see Operation.
      requirement: see Operation; without one, the transform gets None.
    """

    def register(transform: Transform[AnyOp]) -> Transform[AnyOp]:
        OPERATIONS[op] = Operation(transform, requirement, output_spec)
        return transform

    return register


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """Returns the column that a feature is computed from; the columns of a cross are joined.

    Raises:
      InputError: the operation does not take a column's dtype.
    """
    sources = [columns[name] for name in feature.columns]
    for column in sources:
        if column.dtype not in feature.op.takes:
            where = ".".join(("features", *map(str, feature.key[:2])))
            takes = " or ".join(sorted(feature.op.takes))
            raise InputError(
                f"{where}: {feature.op.op} takes {takes}, and the column {column.name} holds {column.dtype}",
                "choose another operation; docs/config.md lists what each takes",
            )
    return sources[0] if len(sources) == 1 else joined(sources)


def requirement(op: Op, column: Column, name: str) -> Requirement | None:
    """Returns the statistics of the training split that `op` uses for the feature `name`, or None."""
    return OPERATIONS[type(op)].requirement(op, column, name)


def apply(op: Op, column: Column, analyzed: tf.Tensor | None) -> tf.Tensor:
    """Computes a feature.

    Args:
      op: the operation's settings.
      column: the raw column.
      analyzed: the result of its requirement; None without one.

    Returns:
      The feature, see `output_spec`.
    """
    return OPERATIONS[type(op)].transform(op, column, analyzed)


def output_spec(feature: Feature, size: VocabularySize) -> Dense | Ids:
    """Returns dtype, shape and cardinality of a feature."""
    return OPERATIONS[type(feature.op)].output_spec(feature.op, feature.name, size)


@operation(
    ZScore,
    requirement=lambda op, column, name: Moments(column.where_present(column.numbers())),
    output_spec=lambda op, name, size: Dense(ordered=True),
)
def _z_score(_op: ZScore, column: Column, moments: tf.Tensor) -> tf.Tensor:
    return _scaled(column.numbers(), column.present, moments)


@operation(
    Log,
    requirement=lambda op, column, name: Moments(column.where_present(_logs(column.numbers()))),
    output_spec=lambda op, name, size: Dense(ordered=True),
)
def _log(_op: Log, column: Column, moments: tf.Tensor) -> tf.Tensor:
    return _scaled(_logs(column.numbers()), column.present, moments)


@operation(
    MinMax,
    requirement=lambda op, column, name: Moments(column.where_present(column.numbers())),
    output_spec=lambda op, name, size: Dense(ordered=True),
)
def _min_max(_op: MinMax, column: Column, moments: tf.Tensor) -> tf.Tensor:
    return _between(column.numbers(), column.present, moments)


@operation(
    Clip,
    requirement=lambda op, column, name: Moments(column.where_present(_clipped(op, column))),
    output_spec=lambda op, name, size: Dense(ordered=True),
)
def _clip(op: Clip, column: Column, moments: tf.Tensor) -> tf.Tensor:
    return _scaled(_clipped(op, column), column.present, moments)


def _clipped(op: Clip, column: Column) -> tf.Tensor:
    low, high = (-math.inf if op.low is None else op.low), (math.inf if op.high is None else op.high)
    return tf.clip_by_value(column.numbers(), low, high)


@operation(PassThrough, output_spec=lambda op, name, size: Dense(ordered=True))
def _pass_through(_op: PassThrough, column: Column, _analyzed: None) -> tf.Tensor:
    # A missing value is 0 in `numbers`.
    return column.numbers()


@operation(Missing, output_spec=lambda op, name, size: Dense())
def _missing(_op: Missing, column: Column, _analyzed: None) -> tf.Tensor:
    return 1.0 - tf.cast(column.present, tf.float32)


@operation(
    PiecewiseLinear,
    requirement=lambda op, column, name: Edges(column.where_present(column.numbers()), op.bins),
    output_spec=lambda op, name, size: Dense(op.bins, ordered=True),
)
def _piecewise_linear(op: PiecewiseLinear, column: Column, edges: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(_bins(column.numbers(), column.present, edges), [None, op.bins])


@operation(
    Bucketize,
    requirement=lambda op, column, name: Quantiles(column.where_present(column.numbers()), op.buckets),
    output_spec=lambda op, name, size: Ids(op.rows, width=op.embedding, ordered=True),
)
def _bucketize(_op: Bucketize, column: Column, boundaries: tf.Tensor) -> tf.Tensor:
    return _ids(_bucket(column.numbers(), boundaries), column.present)


@operation(
    Vocab,
    requirement=lambda op, column, name: Vocabulary(
        column.where_present(column.texts()), name, op.size, op.min_frequency
    ),
    output_spec=lambda op, name, size: Ids(size(name) + op.rows, width=op.embedding),
)
def _vocab(op: Vocab, column: Column, path: tf.Tensor) -> tf.Tensor:
    return _ids(tft.apply_vocabulary(column.texts(), path, num_oov_buckets=op.oov_buckets), column.present)


@operation(Hash, output_spec=lambda op, name, size: Ids(op.rows, width=op.embedding))
def _hash(op: Hash, column: Column, _analyzed: None) -> tf.Tensor:
    return _hashed(column, op.buckets)


@operation(Cross, output_spec=lambda op, name, size: Ids(op.rows, width=op.embedding))
def _cross(op: Cross, column: Column, _analyzed: None) -> tf.Tensor:
    return _hashed(column, op.buckets)


def _hashed(column: Column, buckets: int) -> tf.Tensor:
    return _ids(tf.strings.to_hash_bucket_fast(column.texts(), buckets), column.present)


@operation(
    MultiHot,
    requirement=lambda op, column, name: Vocabulary(
        text_values.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    output_spec=lambda op, name, size: Dense(op.size + op.oov_buckets),
)
def _multi_hot(op: MultiHot, column: Column, path: tf.Tensor) -> tf.Tensor:
    # The width of the vocabulary itself is unknown while the graph is traced.
    return text_values.multi_hot(
        _looked_up(text_values.parts(column, op.separator), path, op.oov_buckets), op.size + op.oov_buckets
    )


@operation(
    Split,
    requirement=lambda op, column, name: Vocabulary(
        text_values.parts(column, op.separator).flat_values, name, op.size, op.min_frequency
    ),
    output_spec=lambda op, name, size: Ids(size(name) + op.rows, op.max_values, op.embedding),
)
def _split(op: Split, column: Column, path: tf.Tensor) -> tf.Tensor:
    return text_values.padded(
        _looked_up(text_values.parts(column, op.separator), path, op.oov_buckets) + 1, op.max_values
    )


@operation(
    Text,
    requirement=lambda op, column, name: _vocabulary_of_words(op, column, name),
    output_spec=lambda op, name, size: Ids(
        op.rows + (0 if op.vocabulary is None else size(name)), op.max_values, op.embedding
    ),
)
def _text(op: Text, column: Column, path: tf.Tensor) -> tf.Tensor:
    words = text_values.words(column, lower=op.lower, ngrams=op.ngrams)
    if op.vocabulary is not None:
        return text_values.padded(_looked_up(words, path, 1) + 1, op.max_values)
    hashed = words.with_flat_values(tf.strings.to_hash_bucket_fast(words.flat_values, op.buckets))
    return text_values.padded(hashed + 1, op.max_values)


def _vocabulary_of_words(op: Text, column: Column, name: str) -> Vocabulary | None:
    if op.vocabulary is None:
        return None
    return Vocabulary(text_values.words(column, lower=op.lower, ngrams=op.ngrams).flat_values, name, op.vocabulary)


def _looked_up(texts: tf.RaggedTensor, path: tf.Tensor, oov_buckets: int) -> tf.RaggedTensor:
    """Looks up the ids of strings, from 0 on."""
    return texts.with_flat_values(tft.apply_vocabulary(texts.flat_values, path, num_oov_buckets=oov_buckets))


@operation(
    DatePart,
    requirement=lambda op, column, name: _moments_of_years(op, column),
    output_spec=lambda op, name, size: Ids(op.rows, width=op.embedding, ordered=True) if op.part in SPANS else Dense(),
)
def _date_part(op: DatePart, column: Column, moments: tf.Tensor) -> tf.Tensor:
    value, present = dates.part_of(column, op.part, op.unit, op.order)
    if op.part in SPANS:
        return _ids(value - SPANS[op.part].first, present)
    return _scaled(tf.cast(value, tf.float32), present, moments)


def _moments_of_years(op: DatePart, column: Column) -> Moments | None:
    if op.part in SPANS:
        return None
    value, present = dates.part_of(column, op.part, op.unit, op.order)
    return Moments(tf.boolean_mask(tf.cast(value, tf.float32), present))


@operation(Cyclical, output_spec=lambda op, name, size: Dense(2))
def _cyclical(op: Cyclical, column: Column, _analyzed: None) -> tf.Tensor:
    return tf.ensure_shape(_circle(column.values, column.present, op.period), [None, 2])


@operation(
    Image,
    output_spec=lambda op, name, size: Dense(
        op.height * op.width * op.channels, image=(op.height, op.width, op.channels)
    ),
)
def _image(_op: Image, column: Column, _analyzed: None) -> tf.Tensor:
    # Encoded: pixels take many times the space of a file. See `images.decoded`.
    return column.values


@graph_function
def _logs(numbers: tf.Tensor) -> tf.Tensor:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


@graph_function
def _scaled(numbers: tf.Tensor, present: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
    """Returns (x - mean) / standard deviation; 0 where the value is missing."""
    return tf.where(present, (numbers - moments[0]) / moments[1], tf.zeros_like(numbers))


@graph_function
def _between(numbers: tf.Tensor, present: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
    """Returns (x - minimum) / (maximum - minimum), clipped to [0, 1]; 0 where the value is missing."""
    shares = tf.math.divide_no_nan(numbers - moments[2], moments[3] - moments[2])
    return tf.where(present, tf.clip_by_value(shares, 0.0, 1.0), tf.zeros_like(numbers))


@graph_function
def _circle(values: tf.Tensor, present: tf.Tensor, period: float) -> tf.Tensor:
    """Returns sin and cos of 2π · x / period: [batch] → [batch, 2]; 0 where the value is missing."""
    # In float64, since float32 rounds seconds since 1970 to minutes.
    angle = 2 * math.pi * (tf.cast(values, tf.float64) % period) / period
    both = tf.cast(tf.stack([tf.sin(angle), tf.cos(angle)], axis=1), tf.float32)
    return tf.where(present[:, tf.newaxis], both, 0.0)


@graph_function
def _bins(numbers: tf.Tensor, present: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    """Returns each number's position in each bin, in [0, 1]: [batch] → [batch, bins]; 0 where the value is missing."""
    low, width = edges[:-1], edges[1:] - edges[:-1]
    # A bin of width 0 is empty.
    position = tf.math.divide_no_nan(numbers[:, tf.newaxis] - low, width)
    return tf.where(present[:, tf.newaxis], tf.clip_by_value(position, 0.0, 1.0), 0.0)


@graph_function
def _bucket(numbers: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    return tf.searchsorted(boundaries, numbers, side="right", out_type=tf.int64)


@graph_function
def _ids(ids: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    """Returns the ids + 1, and 0 for a missing value: int64, shape [batch]."""
    return tf.where(present, ids + 1, tf.zeros_like(ids))
