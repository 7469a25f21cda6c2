"""Operations on histories."""

from __future__ import annotations

import math

import tensorflow as tf

from components.features import text_values
from components.features.analysis import Vocabulary
from components.features.column import Column, graph_function
from components.features.feature_spec import Ids
from components.features.operation import operation
from components.features.sequence_ops import GAP_BUCKETS, EventSequence, OfHistory, TimeGaps
from components.features.transforms.ids import bucket_ids, frequent_buckets, looked_up, with_missing


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
        ids = looked_up(events, path, op.oov_buckets)
    else:
        ids = events.with_flat_values(bucket_ids(op, events.flat_values, path))
    known = tf.not_equal(events.flat_values, "")
    return text_values.padded(ids.with_flat_values(with_missing(ids.flat_values, known)), op.max_values)


def _vocabulary_of_events(op: EventSequence, column: Column, name: str) -> Vocabulary | None:
    if op.buckets is not None:
        return frequent_buckets(op, _known_events(op, column), name)
    return Vocabulary(_events(op, column).flat_values, name, op.size, op.min_frequency)


def _known_events(op: OfHistory, column: Column) -> tf.Tensor:
    """Return the events that have an id: string [n]."""
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
    """Return a column's first value, int64 [batch], and where it is a whole number, bool [batch]."""
    if column.dtype == "int":
        return column.values, column.present
    known = tf.strings.regex_full_match(column.values, r"-?[0-9]{1,18}")
    return tf.strings.to_number(tf.where(known, column.values, "0"), tf.int64), known


def _absent(times: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    zeros = tf.zeros_like(times.row_lengths())
    return zeros, tf.cast(zeros, tf.bool)


@graph_function
def _gap_buckets(
    times: tf.RaggedTensor, known: tf.Tensor, reference: tf.Tensor, given: tf.Tensor, unit: int
) -> tf.RaggedTensor:
    """Return 1 + the logarithm of each event's gap in seconds, and 0 where its time is unknown: int64 [batch, n]."""
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
