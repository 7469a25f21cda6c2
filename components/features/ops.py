"""The feature operations in the transform graph, and the shape of their outputs for the model.

An operation is an entry of `OPERATIONS`: a function that transforms a column, through TFT so that training and serving
share the graph, and functions that return its requirement on the analysis and its output spec. How it treats missing
values is documented in its settings class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features import dates, feature_names, text_values
from components.features.analysis import Collisions, Edges, Moments, Quantiles, Requirement, Vocabulary
from components.features.base_op import Embedded, Op
from components.features.column import Column, graph_function, joined
from components.features.config import (
    Bucketize,
    Clip,
    Cross,
    Cyclical,
    Feature,
    Hash,
    Hashed,
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
from components.features.sequence_ops import GAP_BUCKETS, EventSequence, OfHistory, TimeGaps
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
      quotients: number of rows for the quotients of ids, if a vector is composed of two rows; see Embedded.
      composition: how it is composed.
      shares: the feature whose embeddings it has, if they are not its own.
      is_history: whether the values are events, the latest one last; padding follows them.
      along: the feature of the history whose events the values belong to.
    """

    cardinality: int
    values: int = 1
    width: int | None = None
    ordered: bool = False
    quotients: int | None = None
    composition: Literal["product", "sum"] = "product"
    shares: str | None = None
    is_history: bool = False
    along: str | None = None


VocabularySize = Callable[[str], int]
"""Name of a vocabulary → number of its entries."""


@dataclass(frozen=True)
class Operation:
    """The functions of an operation.

    Attributes:
      transform: (settings, column, result of the analysis or None) → the feature; of an image, the encoded one.
      requirement: (settings, column, feature's name) → the statistics of the training split that it uses, or None.
      output_spec: (settings, feature's name, vocabulary sizes) → the feature's dtype and shape.
      hashed: (settings, column) → the texts that it hashes, string [n], or None.
    """

    transform: Callable[[Any, Column, Any], tf.Tensor]
    requirement: Callable[[Any, Column, str], Requirement | None]
    output_spec: Callable[[Any, str, VocabularySize], Dense | Ids]
    hashed: Callable[[Any, Column], tf.Tensor | None]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)
Transform: TypeAlias = Callable[[AnyOp, Column, Any], tf.Tensor]


def operation(
    op: type[AnyOp],
    *,
    output_spec: Callable[[AnyOp, str, VocabularySize], Dense | Ids],
    requirement: Callable[[AnyOp, Column, str], Requirement | None] = lambda op, column, name: None,
    hashed: Callable[[AnyOp, Column], tf.Tensor | None] = lambda op, column: None,
) -> Callable[[Transform[AnyOp]], Transform[AnyOp]]:
    """Registers the decorated function as the transform of an operation; see Operation.

    Args:
      op: the settings class.
      output_spec: see Operation.
      requirement: see Operation; without one, the transform gets None.
      hashed: see Operation.
    """

    def register(transform: Transform[AnyOp]) -> Transform[AnyOp]:
        OPERATIONS[op] = Operation(transform, requirement, output_spec, hashed)
        return transform

    return register


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """Returns the column that a feature is computed from; those of a cross are joined, and one may be the reference.

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
    if isinstance(feature.op, TimeGaps):
        return replace(sources[0], reference=sources[1]) if feature.op.until else sources[0]
    return sources[0] if len(sources) == 1 else joined(sources)


def requirements(features: Sequence[Feature], sources: Mapping[str, Column]) -> dict[str, Requirement]:
    """Returns the statistics of the training split that features use, by the name of the feature.

    The vocabulary of several features is that of the one which the others share it with.

    Args:
      features: in the order of the config.
      sources: feature → the column that it is computed from.
    """
    found: dict[str, Requirement] = {}
    for feature in features:
        each = OPERATIONS[type(feature.op)].requirement(feature.op, sources[feature.name], feature.vocabulary)
        if each is not None and feature.shares is None:
            found[feature.name] = each
    for feature in features:
        owner = found.get(feature.shares or "")
        if isinstance(feature.op, OfHistory) and isinstance(owner, Vocabulary):
            shared = OPERATIONS[type(feature.op)].requirement(feature.op, sources[feature.name], feature.vocabulary)
            if isinstance(shared, Vocabulary):
                found[feature.vocabulary] = replace(owner, texts=tf.concat([owner.texts, shared.texts], axis=0))
    return found


def collisions(features: Sequence[Feature], sources: Mapping[str, Column]) -> list[Collisions]:
    """Returns what is required to report how many values of hashed features share a bucket; see `requirements`.

    The graph does not read the results.
    """
    texts: dict[str, list[tf.Tensor]] = {}
    buckets: dict[str, int] = {}
    for feature in features:
        of_feature = OPERATIONS[type(feature.op)].hashed(feature.op, sources[feature.name])
        if of_feature is not None and isinstance(feature.op, (Hashed, Text, EventSequence)):
            texts.setdefault(feature.vocabulary, []).append(of_feature)
            buckets[feature.vocabulary] = feature.op.buckets or 0
    return [
        Collisions(tf.concat(each, axis=0), f"{feature_names.COLLISIONS}{name}", buckets[name])
        for name, each in texts.items()
    ]


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
    spec = OPERATIONS[type(feature.op)].output_spec(feature.op, feature.vocabulary, size)
    if isinstance(spec, Ids) and isinstance(feature.op, Embedded):
        composition = feature.op.composition or "product"
        spec = replace(spec, quotients=feature.op.quotient_remainder, composition=composition)
    if isinstance(spec, Ids) and isinstance(feature.op, OfHistory):
        return replace(spec, is_history=True, shares=feature.shares, along=feature.along)
    return spec


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


def _spec_of_hashed(op: Hashed, name: str, size: VocabularySize) -> Ids:
    return Ids(op.rows + (size(name) if op.min_frequency > 1 else 0), width=op.embedding)


def _present_texts(_op: Hashed, column: Column) -> tf.Tensor:
    return column.where_present(column.texts())


def _hash(op: Hashed, column: Column, path: tf.Tensor | None) -> tf.Tensor:
    return _ids(_bucket_ids(op, column.texts(), path), column.present)


for _hashed_op in (Hash, Cross):
    operation(
        _hashed_op,
        requirement=lambda op, column, name: _frequent_buckets(op, _present_texts(op, column), name),
        output_spec=_spec_of_hashed,
        hashed=_present_texts,
    )(_hash)


def _frequent_buckets(op: Hashed | EventSequence, texts: tf.Tensor, name: str) -> Vocabulary | None:
    """The vocabulary of the buckets with `min_frequency` of the texts; None if all buckets have ids."""
    if op.min_frequency == 1 or op.buckets is None:
        return None
    return Vocabulary(_bucket_names(texts, op.buckets), name, op.buckets, op.min_frequency)


def _bucket_ids(op: Hashed | EventSequence, texts: tf.Tensor, path: tf.Tensor | None) -> tf.Tensor:
    """The ids of texts that are hashed, from 0 on: the bucket, or its rank among the frequent ones; int64 [n]."""
    if op.min_frequency == 1:
        return tf.strings.to_hash_bucket_fast(texts, op.buckets)
    return tft.apply_vocabulary(_bucket_names(texts, op.buckets), path, num_oov_buckets=1)


def _bucket_names(texts: tf.Tensor, buckets: int | None) -> tf.Tensor:
    return tf.strings.as_string(tf.strings.to_hash_bucket_fast(texts, buckets))


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
    hashed=lambda op, column: _hashed_words(op, column),
)
def _text(op: Text, column: Column, path: tf.Tensor) -> tf.Tensor:
    words = text_values.words(column, lower=op.lower, ngrams=op.ngrams)
    if op.vocabulary is not None:
        return text_values.padded(_looked_up(words, path, 1) + 1, op.max_values)
    hashed = words.with_flat_values(tf.strings.to_hash_bucket_fast(words.flat_values, op.buckets))
    return text_values.padded(hashed + 1, op.max_values)


def _hashed_words(op: Text, column: Column) -> tf.Tensor | None:
    if op.vocabulary is not None:
        return None
    return text_values.words(column, lower=op.lower, ngrams=op.ngrams).flat_values


def _vocabulary_of_words(op: Text, column: Column, name: str) -> Vocabulary | None:
    if op.vocabulary is None:
        return None
    return Vocabulary(text_values.words(column, lower=op.lower, ngrams=op.ngrams).flat_values, name, op.vocabulary)


@operation(
    EventSequence,
    requirement=lambda op, column, name: _vocabulary_of_events(op, column, name),
    output_spec=lambda op, name, size: Ids(
        op.rows + (size(name) if op.most_entries else 0), op.max_values, op.embedding
    ),
    hashed=lambda op, column: None if op.buckets is None else _known_events(op, column),
)
def _sequence(op: EventSequence, column: Column, path: tf.Tensor) -> tf.Tensor:
    events = _events(op, column)
    if op.buckets is None:
        ids = _looked_up(events, path, op.oov_buckets)
    else:
        ids = events.with_flat_values(_bucket_ids(op, events.flat_values, path))
    known = tf.not_equal(events.flat_values, "")
    return text_values.padded(ids.with_flat_values(_ids(ids.flat_values, known)), op.max_values)


def _vocabulary_of_events(op: EventSequence, column: Column, name: str) -> Vocabulary | None:
    if op.buckets is not None:
        return _frequent_buckets(op, _known_events(op, column), name)
    return Vocabulary(_events(op, column).flat_values, name, op.size, op.min_frequency)


def _known_events(op: OfHistory, column: Column) -> tf.Tensor:
    """The events that have an id: string [n]."""
    texts = _events(op, column).flat_values
    return tf.boolean_mask(texts, tf.not_equal(texts, ""))


def _events(op: OfHistory, column: Column) -> tf.RaggedTensor:
    return text_values.latest(text_values.events(column, op.separator), op.max_values)


@operation(TimeGaps, output_spec=lambda op, name, size: Ids(op.rows, op.max_values, op.embedding, ordered=True))
def _time_gaps(op: TimeGaps, column: Column, _analyzed: None) -> tf.Tensor:
    times, known = text_values.whole_numbers(column, op.separator, op.max_values)
    # Without a reference the time of no event is later than the last one's.
    reference, given = _whole_number(column.reference) if column.reference else _absent(times)
    buckets = _gap_buckets(times, known, reference, given, 1 if op.unit == "seconds" else 1000)
    return text_values.padded(buckets, op.max_values)


def _whole_number(column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a column's first value, int64 [batch], and where it is a whole number, bool [batch]."""
    if column.dtype == "int":
        return column.values, column.present
    known = tf.strings.regex_full_match(column.values, r"-?[0-9]{1,18}")
    return tf.strings.to_number(tf.where(known, column.values, "0"), tf.int64), known


def _absent(times: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    zeros = tf.zeros_like(times.row_lengths())
    return zeros, tf.cast(zeros, tf.bool)


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
def _gap_buckets(
    times: tf.RaggedTensor, known: tf.Tensor, reference: tf.Tensor, given: tf.Tensor, unit: int
) -> tf.RaggedTensor:
    """Returns 1 + the logarithm of each event's gap in seconds, and 0 where its time is unknown: int64 [batch, n]."""
    rows = times.value_rowids()
    last = tf.math.unsorted_segment_max(
        tf.where(known, times.flat_values, times.dtype.min), rows, times.nrows(), name="last"
    )
    until = tf.gather(tf.where(given, reference, last), rows)
    seconds = tf.maximum(until - times.flat_values, 0) // unit
    # In float64, in which all powers of 2 below 2**53 have exact logarithms.
    logarithm = tf.math.log(tf.cast(seconds + 1, tf.float64)) / math.log(2)
    bucket = tf.minimum(tf.cast(logarithm + 1e-9, tf.int64), GAP_BUCKETS - 1)
    return times.with_flat_values(tf.where(known, bucket + 1, tf.zeros_like(bucket)))


@graph_function
def _ids(ids: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    """Returns the ids + 1, and 0 for a missing value: int64, shape [batch]."""
    return tf.where(present, ids + 1, tf.zeros_like(ids))
