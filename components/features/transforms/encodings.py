"""Operations that look up a statistic of a value in a table, and distances."""

from __future__ import annotations

import math

import tensorflow as tf

from components.features.analysis import Moments, ValueStatistics
from components.features.column import Column, FirstValues, RowLabels
from components.features.encoding_ops import Count, TargetMean
from components.features.feature_spec import Dense
from components.features.geo_ops import GeoDistance
from components.features.operation import operation
from components.features.value_table import MISSING, CountAccumulator, TargetMeanAccumulator, ValueTable

_HASHES = (1 << 63) - 1
_EARTH_RADIUS = 6371.0088
"""Mean radius of the earth in km (Moritz 2000, Geodetic Reference System 1980)."""


@operation(
    TargetMean,
    requirement=lambda op, column, name: _require_means(op, column),
    output_spec=lambda op, name, size: Dense(),
)
def _target_mean(op: TargetMean, column: Column, table: ValueTable) -> tf.Tensor:
    target = _target(column)
    places, known = _look_up(table, column)
    if target.is_training:
        # Only these rows have labels in the table, so only they need the means without their fold.
        numbers = tf.gather_nd(tf.constant(table.fold_values), tf.stack([places, target.folds(op.folds)], axis=1))
    else:
        numbers = tf.gather(tf.constant(table.values), places)
    numbers = tf.where(known[:, tf.newaxis], numbers, 0.0)
    return numbers[:, 0] if numbers.shape[1] == 1 else numbers


def _require_means(op: TargetMean, column: Column) -> ValueStatistics:
    target = _target(column)
    classes, labels = target.labels
    accumulator = TargetMeanAccumulator(op.size, op.min_frequency, op.smoothing, op.folds)
    hashes = tf.strings.to_hash_bucket_fast(classes, _HASHES)
    return ValueStatistics(_keys(column), target.folds(op.folds), hashes, labels, target.weights, accumulator)


def _target(column: Column) -> RowLabels:
    if column.target is None:
        raise ValueError(f"expected a column with a target, received {column.name}")
    return column.target


@operation(
    Count,
    requirement=lambda op, column, name: _require_counts(op, column),
    output_spec=lambda op, name, size: Dense(),
)
def _count(_op: Count, column: Column, table: ValueTable) -> tf.Tensor:
    places, known = _look_up(table, column)
    return tf.where(known, tf.gather(tf.constant(table.values[:, 0]), places), 0.0)


def _require_counts(op: Count, column: Column) -> ValueStatistics:
    keys = _keys(column)
    zeros = tf.zeros_like(keys)
    accumulator = CountAccumulator(op.size, min_frequency=1, scale=op.scale)
    numbers = tf.cast(zeros, tf.float64)
    return ValueStatistics(keys, zeros, zeros, numbers, numbers + 1, accumulator)


def _keys(column: Column) -> tf.Tensor:
    """Return the keys of the values; see ValueTable. A number has the same key as an equal number."""
    if column.dtype != "float":
        texts = column.texts()
    else:
        # 0.0 and -0.0 have different texts.
        values = tf.where(tf.equal(column.values, 0), tf.zeros_like(column.values), column.values)
        texts = FirstValues(values, column.present).decimal_texts()
    keys = tf.strings.to_hash_bucket_fast(texts, _HASHES)
    return tf.where(column.present, keys, tf.constant(MISSING, tf.int64))


def _look_up(table: ValueTable, column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the places of the values in a table, int64, and whether they are in it; both of shape [batch]."""
    keys, wanted = tf.constant(table.keys), _keys(column)
    # Do not use tf.searchsorted, which cannot reshape an empty batch.
    places = tf.raw_ops.LowerBound(sorted_inputs=keys[tf.newaxis], values=wanted[tf.newaxis], out_type=tf.int64)[0]
    places = tf.minimum(places, len(table.keys) - 1)
    return places, tf.equal(tf.gather(keys, places), wanted)


@operation(
    GeoDistance,
    requirement=lambda op, column, name: Moments(_log_distances(op, column)),
    output_spec=lambda op, name, size: Dense(),
)
def _geo_distance(op: GeoDistance, column: Column, moments: tf.Tensor) -> tf.Tensor:
    logs = _log_distances(op, column)
    scaled = tf.cast((logs - moments[0]) / moments[1], tf.float32)
    return tf.where(tf.math.is_nan(logs), 0.0, scaled)


def _log_distances(op: GeoDistance, column: Column) -> tf.Tensor:
    """Return log(1 + distance in km), float64 of shape [batch]; NaN where a coordinate is missing or out of range."""
    longitude, *columns = column.others
    place = [_degrees(other, most) for other, most in zip(columns, (90, 180), strict=True)] if columns else op.to
    return tf.math.log1p(haversine(_degrees(column, 90), _degrees(longitude, 180), *place))


def _degrees(column: Column, most: float) -> tf.Tensor:
    numbers = column.decimal_numbers()
    in_range = column.present & (tf.abs(numbers) <= most)
    return tf.where(in_range, numbers, tf.constant(math.nan, tf.float64))


def haversine(latitude: tf.Tensor, longitude: tf.Tensor, to_latitude: tf.Tensor, to_longitude: tf.Tensor) -> tf.Tensor:
    """Compute the great-circle distances between places in km; all arguments are float64 in degrees.

    Source: R. W. Sinnott, Virtues of the Haversine, 1984.
    """
    degree = math.pi / 180
    first, second = latitude * degree, tf.cast(to_latitude, tf.float64) * degree
    by_latitude = tf.sin((second - first) / 2) ** 2
    by_longitude = tf.sin((to_longitude - longitude) * degree / 2) ** 2
    chord = by_latitude + tf.cos(first) * tf.cos(second) * by_longitude
    # Rounding may leave a number above 1 for opposite places.
    return 2 * _EARTH_RADIUS * tf.asin(tf.sqrt(tf.clip_by_value(chord, 0, 1)))
