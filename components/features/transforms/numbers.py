"""Operations whose output is numbers, from numbers, dates and images."""

from __future__ import annotations

import math

import tensorflow as tf

from components.features import dates
from components.features.analysis import Edges, Moments
from components.features.column import Column, FirstValues
from components.features.config import (
    Clip,
    Cyclical,
    Log,
    MinMax,
    Missing,
    PassThrough,
    PiecewiseLinear,
    ZScore,
)
from components.features.date_ops import SPANS, DatePart
from components.features.feature_spec import Dense, Ids
from components.features.image_ops import Image
from components.features.operation import operation
from components.features.transforms.ids import with_missing


@operation(
    ZScore,
    requirement=lambda op, column, name: Moments(column.mark_missing(column.numbers())),
    output_spec=lambda op, name, size: Dense(ordered=True),
    elementwise=True,
)
def _z_score(_op: ZScore, column: FirstValues, moments: tf.Tensor) -> tf.Tensor:
    return _scale(column.numbers(), column.present, moments)


@operation(
    Log,
    requirement=lambda op, column, name: Moments(column.mark_missing(_logs(column.numbers()))),
    output_spec=lambda op, name, size: Dense(ordered=True),
    elementwise=True,
)
def _log(_op: Log, column: FirstValues, moments: tf.Tensor) -> tf.Tensor:
    return _scale(_logs(column.numbers()), column.present, moments)


@operation(
    MinMax,
    requirement=lambda op, column, name: Moments(column.mark_missing(column.numbers())),
    output_spec=lambda op, name, size: Dense(ordered=True),
    elementwise=True,
)
def _min_max(_op: MinMax, column: FirstValues, moments: tf.Tensor) -> tf.Tensor:
    return _between(column.numbers(), column.present, moments)


@operation(
    Clip,
    requirement=lambda op, column, name: Moments(column.mark_missing(_clip_numbers(op, column))),
    output_spec=lambda op, name, size: Dense(ordered=True),
    elementwise=True,
)
def _clip(op: Clip, column: FirstValues, moments: tf.Tensor) -> tf.Tensor:
    return _scale(_clip_numbers(op, column), column.present, moments)


def _clip_numbers(op: Clip, column: FirstValues) -> tf.Tensor:
    low, high = (-math.inf if op.low is None else op.low), (math.inf if op.high is None else op.high)
    return tf.clip_by_value(column.numbers(), tf.constant(low, tf.float64), tf.constant(high, tf.float64))


@operation(PassThrough, output_spec=lambda op, name, size: Dense(ordered=True), elementwise=True)
def _pass_through(_op: PassThrough, column: FirstValues, _analyzed: None) -> tf.Tensor:
    # A missing value is 0 in `values`.
    return tf.cast(column.values, tf.float32)


@operation(Missing, output_spec=lambda op, name, size: Dense(), elementwise=True)
def _missing(_op: Missing, column: FirstValues, _analyzed: None) -> tf.Tensor:
    return 1.0 - tf.cast(column.present, tf.float32)


@operation(
    PiecewiseLinear,
    requirement=lambda op, column, name: Edges(column.mark_missing(column.numbers()), op.bins),
    output_spec=lambda op, name, size: Dense(op.bins, ordered=True),
    elementwise=True,
)
def _piecewise_linear(_op: PiecewiseLinear, column: FirstValues, edges: tf.Tensor) -> tf.Tensor:
    # This is the compact form; a network reads `op.bins` numbers. See `compact`.
    return _bins(column.numbers(), column.present, edges)


@operation(Cyclical, output_spec=lambda op, name, size: Dense(2), elementwise=True)
def _cyclical(op: Cyclical, column: FirstValues, _analyzed: None) -> tf.Tensor:
    return _circle(column.values, column.present, op.period)


@operation(
    DatePart,
    requirement=lambda op, column, name: _moments_of_years(op, column),
    output_spec=lambda op, name, size: _date_spec(op),
    elementwise=True,
)
def _date_part(op: DatePart, column: FirstValues, moments: tf.Tensor) -> tf.Tensor:
    value, present = dates.part_of(column, op.part, op.unit, op.order, op.holidays)
    if op.encode == "cyclical":
        return _circle(value - SPANS[op.part].first, present, SPANS[op.part].count)
    if op.part in SPANS:
        return with_missing(value - SPANS[op.part].first, present)
    return _scale(tf.cast(value, tf.float64), present, moments)


def _date_spec(op: DatePart) -> Dense | Ids:
    if op.is_id:
        return Ids(op.rows, width=op.embedding, ordered=True)
    return Dense(2 if op.encode == "cyclical" else 1)


def _moments_of_years(op: DatePart, column: FirstValues) -> Moments | None:
    if op.part in SPANS:
        return None
    value, present = dates.part_of(column, op.part, op.unit, op.order)
    return Moments(tf.where(present, tf.cast(value, tf.float64), math.nan))


@operation(
    Image,
    output_spec=lambda op, name, size: Dense(
        op.height * op.width * op.channels, image=(op.height, op.width, op.channels)
    ),
)
def _image(_op: Image, column: Column, _analyzed: None) -> tf.Tensor:
    # Keep the image encoded, because pixels need many times the space of a file. See `images.decode`.
    return column.values


def _logs(numbers: tf.Tensor) -> tf.Tensor:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


def _scale(numbers: tf.Tensor, present: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
    """Return (x - mean) / standard deviation as float32; 0 where the value is missing."""
    return _to_float32((numbers - moments[0]) / moments[1], present)


def _between(numbers: tf.Tensor, present: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
    """Return (x - minimum) / (maximum - minimum) in [0, 1] as float32; 0 where the value is missing."""
    shares = tf.math.divide_no_nan(numbers - moments[2], moments[3] - moments[2])
    return _to_float32(tf.clip_by_value(shares, tf.zeros_like(shares), tf.ones_like(shares)), present)


def _to_float32(numbers: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    return tf.where(present, tf.cast(numbers, tf.float32), 0.0)


def _circle(values: tf.Tensor, present: tf.Tensor, period: float) -> tf.Tensor:
    """Return sin and cos of 2π · x / period: [batch, …] → [batch, …, 2]; 0 where the value is missing."""
    # Compute in float64, because float32 rounds seconds since 1970 to minutes.
    angle = 2 * math.pi * (tf.cast(values, tf.float64) % period) / period
    points = tf.cast(tf.stack([tf.sin(angle), tf.cos(angle)], axis=-1), tf.float32)
    return tf.where(present[..., tf.newaxis], points, 0.0)


def _bins(numbers: tf.Tensor, present: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    """Return the bins of numbers and the positions in the bins, from 0 to 1; both 0 where the value is missing.

    A number below the first edge is in the first bin, and a number above the last edge is in the last bin that has a
    width.

    Args:
      numbers: float64, [batch, columns].
      present: Where they are not missing, bool, [batch, columns].
      edges: float64, [bins + 1, columns].

    Returns:
      float32, [batch, columns, 2].
    """
    low, width = tf.transpose(edges[:-1]), tf.transpose(edges[1:] - edges[:-1])
    # Bins of width 0 come last, see `analysis.Edges`.
    last = tf.maximum(tf.math.count_nonzero(width, axis=1, keepdims=True, dtype=tf.int32) - 1, 0)
    by_column = tf.transpose(numbers)
    index = tf.clip_by_value(tf.raw_ops.UpperBound(sorted_inputs=low, values=by_column) - 1, 0, last)
    inside = by_column - tf.gather(low, index, batch_dims=1)
    position = tf.math.divide_no_nan(inside, tf.gather(width, index, batch_dims=1))
    position = tf.clip_by_value(tf.cast(position, tf.float32), 0.0, 1.0)
    pairs = tf.transpose(tf.stack([tf.cast(index, tf.float32), position], axis=2), [1, 0, 2])
    return tf.where(present[..., tf.newaxis], pairs, 0.0)
