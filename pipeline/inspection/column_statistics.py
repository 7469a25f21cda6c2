"""Reads the column statistics that StatisticsGen (TFDV) computed in a run, and compares them between two runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import statistics_pb2 as proto

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.data import file_io, image_statistics
from pipeline.core.metadata.store import Artifact, Store

CHANGED = 0.01
"""Distance at or above which a column is reported as changed."""


@dataclass(frozen=True)
class Column:
    """The statistics of a column in one split.

    The fields from `mean` to `zeros` are None unless the column is numeric; `distinct` and `top` are None unless it
    contains texts.

    Attributes:
      name: Name of the column.
      type: `int`, `float`, `string`, `bytes` or `struct`.
      rows: Number of rows in the split, including rows without a value.
      missing: Share of rows without a value, 0 to 1.
      mean: Mean of the numbers.
      deviation: Standard deviation of the numbers.
      least: Smallest number.
      median: Median of the numbers.
      greatest: Largest number.
      zeros: Share of zeros among the numbers, 0 to 1.
      distinct: Number of distinct texts.
      top: The most frequent text.
      shares: Share among the values of each frequent text that TFDV lists.
      histogram: Bins of the numbers as (from, to, share), in ascending order.
    """

    name: str
    type: str
    rows: int
    missing: float
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    median: float | None = None
    greatest: float | None = None
    zeros: float | None = None
    distinct: int | None = None
    top: str | None = None
    shares: dict[str, float] = field(default_factory=dict)
    histogram: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class ColumnChange:
    """The change of a column between two runs.

    Attributes:
      name: Name of the column.
      before: Statistics in the first run. None if it lacks the column.
      now: Statistics in the second run. None if it lacks the column.
      distance: Distance from 0 (equal) to 1. For texts, the largest difference between the shares of a text
        (L-infinity, as in TFDV's drift comparator). For numbers, the Jensen-Shannon divergence of the histograms in
        bits. None if the columns cannot be compared.
    """

    name: str
    before: Column | None
    now: Column | None
    distance: float | None

    @property
    def changed(self) -> bool:
        """Whether only one run has the column, or the distance is at least `CHANGED`."""
        return None in (self.before, self.now) or (self.distance or 0.0) >= CHANGED


def statistics(store: Store, run: str) -> Artifact | None:
    """Return the artifact with the statistics of a run's ingested rows. None if the run did not record it."""
    # A stock Transform also writes an ExampleStatistics artifact, of the transformed rows and without splits.
    return next((artifact for artifact in store.artifacts(run, "ExampleStatistics") if artifact.splits), None)


def columns(store: Store, run: str, split: str) -> dict[str, Column]:
    """Read the statistics of the ingested rows of a split, by column name.

    Raises:
      InputError: The run did not record statistics, or they do not cover this split.
    """
    artifact = statistics(store, run)
    if artifact is None:
        raise InputError(f"run {run} has no statistics", "name a run in which StatisticsGen succeeded")
    return _read(artifact, split)


def changes(before: dict[str, Column], now: dict[str, Column]) -> list[ColumnChange]:
    """Compare all columns of two runs.

    Returns:
      The changes of all columns. Columns that cannot be compared come first, then the largest distances.
    """
    unsorted = [
        ColumnChange(name, before.get(name), now.get(name), _compute_distance(before.get(name), now.get(name)))
        for name in dict.fromkeys((*before, *now))
    ]
    return sorted(unsorted, key=lambda change: -math.inf if change.distance is None else -change.distance)


def _read(artifact: Artifact, split: str) -> dict[str, Column]:
    if split not in artifact.splits:
        raise InputError(
            f"the run has no statistics of the split {split!r}{did_you_mean(split, artifact.splits)}",
            "name another split",
        )
    folder = file_io.join(artifact.uri, f"Split-{split}")
    columns = _read_columns(file_io.join(folder, "FeatureStats.pb"))
    # A separate file has figures of image columns, such as `image.width`.
    images = file_io.join(folder, image_statistics.FIGURES)
    return columns | _read_columns(images) if file_io.file_system(images).exists(images) else columns


def _read_columns(file: str) -> dict[str, Column]:
    try:
        content = file_io.read(file)
        if content is None:
            raise FileNotFoundError("the file does not exist")
        sets = proto.DatasetFeatureStatisticsList.FromString(content).datasets
    except (OSError, DecodeError) as error:
        raise InputError(f"the statistics {file} cannot be read: {error}", "run StatisticsGen again") from error
    # With slices, StatisticsGen writes one data set per slice. The first data set covers all rows.
    columns = (_parse_column(feature, sets[0].num_examples) for feature in sets[0].features)
    return {column.name: column for column in columns}


def _parse_column(feature: proto.FeatureNameStatistics, rows: int) -> Column:
    name = ".".join(feature.path.step) or feature.name
    kind = proto.FeatureNameStatistics.Type.Name(feature.type).lower()
    stats = feature.WhichOneof("stats")
    common = getattr(feature, stats).common_stats if stats else proto.CommonStatistics()
    missing = 1 - common.num_non_missing / rows if rows else 0.0
    if stats == "num_stats":
        numbers = feature.num_stats
        return Column(
            name,
            kind,
            rows,
            missing,
            mean=numbers.mean,
            deviation=numbers.std_dev,
            least=numbers.min,
            median=numbers.median,
            greatest=numbers.max,
            zeros=numbers.num_zeros / common.tot_num_values if common.tot_num_values else 0.0,
            histogram=_parse_histogram(numbers.histograms),
        )
    if stats == "string_stats":
        texts = feature.string_stats
        total = common.tot_num_values or 1
        shares = {bucket.label: bucket.sample_count / total for bucket in texts.rank_histogram.buckets}
        top = texts.top_values[0].value if texts.top_values else None
        return Column(name, kind, rows, missing, distinct=texts.unique, top=top, shares=shares)
    return Column(name, kind, rows, missing)


def _parse_histogram(histograms: Sequence[proto.Histogram]) -> tuple[tuple[float, float, float], ...]:
    """Return the bins of the quantiles histogram if there is one, otherwise of the standard histogram.

    The bins of a quantiles histogram are narrow where values are dense.
    """
    by_type = {histogram.type: histogram for histogram in histograms}
    histogram = by_type.get(proto.Histogram.QUANTILES) or by_type.get(proto.Histogram.STANDARD)
    total = sum(bucket.sample_count for bucket in histogram.buckets) if histogram else 0
    if not histogram or not total:
        return ()
    return tuple((bucket.low_value, bucket.high_value, bucket.sample_count / total) for bucket in histogram.buckets)


def _compute_distance(before: Column | None, now: Column | None) -> float | None:
    if before is None or now is None:
        return None
    if before.shares or now.shares:
        texts = {*before.shares, *now.shares}
        return max(abs(before.shares.get(text, 0.0) - now.shares.get(text, 0.0)) for text in texts)
    if before.histogram and now.histogram:
        return _compute_divergence(before.histogram, now.histogram)
    return None


def _compute_divergence(
    left: Sequence[tuple[float, float, float]], right: Sequence[tuple[float, float, float]]
) -> float:
    """Return the Jensen-Shannon divergence of two histograms, in bits.

    It is computed over the intervals between the edges of both histograms. If a single value fills a whole quantile,
    the bin has width 0. Such a bin counts as a point with a probability.

    Source: J. Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37(1), 1991.
    """
    edges = sorted({edge for low, high, _ in (*left, *right) for edge in (low, high)})
    p, q = _distribute_mass(left, edges), _distribute_mass(right, edges)
    total = 0.0
    for interval in {*p, *q}:
        pair = p.get(interval, 0.0), q.get(interval, 0.0)
        mean = sum(pair) / 2
        total += sum(mass * math.log2(mass / mean) / 2 for mass in pair if mass > 0)
    return min(max(total, 0.0), 1.0)


def _distribute_mass(
    bins: Sequence[tuple[float, float, float]], edges: list[float]
) -> dict[tuple[float, float], float]:
    """Distribute the shares of bins over intervals. Within a bin, the values are assumed to be uniformly distributed.

    Args:
      bins: Bins of a histogram as (from, to, share).
      edges: Edges of the intervals in ascending order; they include the edges of all bins.

    Returns:
      The share of each interval (from, to). A bin of width 0 is an interval of width 0.
    """
    mass: dict[tuple[float, float], float] = {}
    for low, high, share in bins:
        inner = [edge for edge in edges if low <= edge <= high]
        intervals = list(itertools.pairwise(inner)) or [(low, high)]
        for start, stop in intervals:
            part = share * (stop - start) / (high - low) if high > low else share
            mass[start, stop] = mass.get((start, stop), 0.0) + part
    return mass
