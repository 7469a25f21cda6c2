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
from components.features.transforms.ids import bucket_ids, frequent_buckets, look_up, with_missing


@operation(
    EventSequence,
    requirement=lambda op, column, name: _vocabulary_of_events(op, column, name),
    output_spec=lambda op, name, size: Ids(
        op.rows + (size(name) if op.most_entries else 0), op.max_values, op.embedding
    ),
    hashed=lambda op, column: None if op.buckets is None else _select_known_events(op, column),
)
def _sequence(op: EventSequence, column: Column, path: tf.Tensor) -> tf.Tensor:
    events = _events(op, column)
    if op.buckets is None:
        ids = look_up(events, path, op.oov_buckets)
    else:
        ids = events.with_flat_values(bucket_ids(op, events.flat_values, path))
    known = tf.not_equal(events.flat_values, "")
    return text_values.pad(ids.with_flat_values(with_missing(ids.flat_values, known)), op.max_values)


def _vocabulary_of_events(op: EventSequence, column: Column, name: str) -> Vocabulary | None:
    if op.buckets is not None:
        return frequent_buckets(op, _select_known_events(op, column), name)
    return Vocabulary(_events(op, column).flat_values, name, op.size, op.min_frequency)


def _select_known_events(op: OfHistory, column: Column) -> tf.Tensor:
    """Return the events that have an ID; string of shape [n]."""
    texts = _events(op, column).flat_values
    return tf.boolean_mask(texts, tf.not_equal(texts, ""))


def _events(op: OfHistory, column: Column) -> tf.RaggedTensor:
    return text_values.latest(text_values.events(column, op.separator), op.max_values)


@operation(TimeGaps, output_spec=lambda op, name, size: Ids(op.rows, op.max_values, op.embedding, ordered=True))
def _time_gaps(op: TimeGaps, column: Column, _analyzed: None) -> tf.Tensor:
    times, known = text_values.whole_numbers(column, op.separator, op.max_values)
    # Without a reference column, the reference is the time of the last event.
    reference, is_known = _whole_number(column.reference) if column.reference else _absent(times)
    buckets = _gap_buckets(times, known, reference, is_known, 1 if op.unit == "seconds" else 1000)
    return text_values.pad(buckets, op.max_values)


def _whole_number(column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first values of a column as integers, int64 of shape [batch], and whether they are integers, bool."""
    if column.dtype == "int":
        return column.values, column.present
    known = tf.strings.regex_full_match(column.values, r"-?[0-9]{1,18}")
    return tf.strings.to_number(tf.where(known, column.values, "0"), tf.int64), known


def _absent(times: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    zeros = tf.zeros_like(times.row_lengths())
    return zeros, tf.cast(zeros, tf.bool)


@graph_function
def _gap_buckets(
    times: tf.RaggedTensor, known: tf.Tensor, reference: tf.Tensor, has_reference: tf.Tensor, unit: int
) -> tf.RaggedTensor:
    """Return 1 + the base-2 logarithm of the gaps in seconds, and 0 for unknown times; int64 of shape [batch, n]."""
    rows = times.value_rowids()
    last = tf.math.unsorted_segment_max(
        tf.where(known, times.flat_values, times.dtype.min), rows, times.nrows(), name="last"
    )
    until = tf.gather(tf.where(has_reference, reference, last), rows)
    seconds = tf.maximum(until - times.flat_values, 0) // unit
    # Compute in float64, which represents all powers of 2 below 2**53 exactly.
    logarithm = tf.math.log(tf.cast(seconds + 1, tf.float64)) / math.log(2)
    bucket = tf.minimum(tf.cast(logarithm + 1e-9, tf.int64), GAP_BUCKETS - 1)
    return times.with_flat_values(tf.where(known, bucket + 1, tf.zeros_like(bucket)))
