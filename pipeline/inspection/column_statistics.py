"""Column statistics of a run's data, as StatisticsGen (TFDV) counted them, and their distance between two runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import statistics_pb2 as proto

from components.data import image_statistics
from components.errors import InputError
from components.names import did_you_mean
from pipeline.core.metadata.store import Artifact, Store

CHANGED = 0.01
"""The distance from which a column is reported as changed."""


@dataclass(frozen=True)
class Column:
    """The statistics of a column in one split.

    Attributes:
      name: of the column.
      type: int, float, string, bytes or struct.
      rows: of the split, with and without a value.
      missing: share of the rows without a value.
      mean: of the numbers; None, as the next five, if the column has no numbers.
      deviation: standard deviation.
      least: smallest number.
      median: of the numbers.
      greatest: largest number.
      zeros: share of zeros among the numbers.
      distinct: number of different texts; None if the column has no texts.
      top: the most frequent text.
      shares: text → its share among the values, of the most frequent texts that TFDV lists.
      histogram: (from, to, share) of numbers, in order.
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
    """A column in two runs.

    Attributes:
      name: of the column.
      before: in the first run; None if it has no such column.
      now: in the second run; None if it has no such column.
      distance: 0 (equal) to 1. Of texts: the largest difference between two shares (L-infinity, as TFDV's drift
        comparator). Of numbers: the Jensen-Shannon divergence of the histograms, in bits. None if the two columns are
        not comparable.
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
    """Returns the statistics of a run's ingested rows; the statistics of a stock Transform have no splits."""
    return next((each for each in store.artifacts(run, "ExampleStatistics") if each.splits), None)


def columns(store: Store, run: str, split: str) -> dict[str, Column]:
    """Returns name → column, of the ingested rows of a split.

    Raises:
      InputError: the run has no statistics, or not of this split.
    """
    artifact = statistics(store, run)
    if artifact is None:
        raise InputError(f"run {run} has no statistics", "name a run in which StatisticsGen succeeded")
    return _read(artifact, split)


def changes(before: dict[str, Column], now: dict[str, Column]) -> list[ColumnChange]:
    """Returns every column of two runs: first those that are not comparable, then by distance, largest first."""
    unsorted = [
        ColumnChange(name, before.get(name), now.get(name), _distance(before.get(name), now.get(name)))
        for name in dict.fromkeys((*before, *now))
    ]
    return sorted(unsorted, key=lambda each: -math.inf if each.distance is None else -each.distance)


def _read(artifact: Artifact, split: str) -> dict[str, Column]:
    if split not in artifact.splits:
        raise InputError(
            f"the run has no statistics of the split {split!r}{did_you_mean(split, artifact.splits)}",
            "name another split",
        )
    folder = Path(artifact.uri) / f"Split-{split}"
    columns = _columns(folder / "FeatureStats.pb")
    # Figures of images are columns as well: image.width.
    images = folder / image_statistics.FIGURES
    return columns | _columns(images) if images.exists() else columns


def _columns(file: Path) -> dict[str, Column]:
    try:
        sets = proto.DatasetFeatureStatisticsList.FromString(file.read_bytes()).datasets
    except (OSError, DecodeError) as error:
        raise InputError(f"the statistics {file} cannot be read: {error}", "run StatisticsGen again") from error
    # With slices, each has a data set; the first is of all rows.
    return {each.name: each for each in (_column(feature, sets[0].num_examples) for feature in sets[0].features)}


def _column(feature: proto.FeatureNameStatistics, rows: int) -> Column:
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
            histogram=_histogram(numbers.histograms),
        )
    if stats == "string_stats":
        texts = feature.string_stats
        total = common.tot_num_values or 1
        shares = {bucket.label: bucket.sample_count / total for bucket in texts.rank_histogram.buckets}
        top = texts.top_values[0].value if texts.top_values else None
        return Column(name, kind, rows, missing, distinct=texts.unique, top=top, shares=shares)
    return Column(name, kind, rows, missing)


def _histogram(histograms: Sequence[proto.Histogram]) -> tuple[tuple[float, float, float], ...]:
    """Returns the histogram by quantiles, whose bins are narrow where the values are; else the standard one."""
    by_type = {each.type: each for each in histograms}
    histogram = by_type.get(proto.Histogram.QUANTILES) or by_type.get(proto.Histogram.STANDARD)
    total = sum(bucket.sample_count for bucket in histogram.buckets) if histogram else 0
    if not histogram or not total:
        return ()
    return tuple((bucket.low_value, bucket.high_value, bucket.sample_count / total) for bucket in histogram.buckets)


def _distance(before: Column | None, now: Column | None) -> float | None:
    if before is None or now is None:
        return None
    if before.shares or now.shares:
        texts = {*before.shares, *now.shares}
        return max(abs(before.shares.get(text, 0.0) - now.shares.get(text, 0.0)) for text in texts)
    if before.histogram and now.histogram:
        return _divergence(before.histogram, now.histogram)
    return None


def _divergence(left: Sequence[tuple[float, float, float]], right: Sequence[tuple[float, float, float]]) -> float:
    """Returns the Jensen-Shannon divergence of two histograms, in bits, over the edges of both.

    A bin of no width (a value so frequent that it fills a quantile) is a point with a probability of its own.

    Source: J. Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37(1), 1991.
    """
    edges = sorted({edge for low, high, _ in (*left, *right) for edge in (low, high)})
    p, q = _mass(left, edges), _mass(right, edges)
    total = 0.0
    for interval in {*p, *q}:
        pair = p.get(interval, 0.0), q.get(interval, 0.0)
        mean = sum(pair) / 2
        total += sum(mass * math.log2(mass / mean) / 2 for mass in pair if mass > 0)
    return min(max(total, 0.0), 1.0)


def _mass(bins: Sequence[tuple[float, float, float]], edges: list[float]) -> dict[tuple[float, float], float]:
    """Returns interval between two edges, or point → its share; a bin's share is spread evenly over its width."""
    mass: dict[tuple[float, float], float] = {}
    for low, high, share in bins:
        inner = [edge for edge in edges if low <= edge <= high]
        intervals = list(itertools.pairwise(inner)) or [(low, high)]
        for start, stop in intervals:
            part = share * (stop - start) / (high - low) if high > low else share
            mass[start, stop] = mass.get((start, stop), 0.0) + part
    return mass
