"""What StatisticsGen (TFDV) has counted of a run's rows, by column, and how far the columns of two runs lie apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import statistics_pb2 as proto

from components.errors import InputError
from components.names import did_you_mean
from pipeline.metadata.store import Artifact, Store

CHANGED = 0.01
"""The distance at which two columns are worth a word."""


@dataclass(frozen=True)
class Column:
    """A column of one split.

    Attributes:
      name: of the column.
      type: int, float, string, bytes or struct.
      rows: of the split, with and without a value.
      missing: share of the rows without one.
      mean: of the numbers; None where the column holds none, as the following.
      deviation: standard deviation.
      least: smallest number.
      median: of the numbers.
      greatest: largest number.
      zeros: share of zeros among the numbers.
      distinct: how many different texts there are.
      top: the most frequent text.
      shares: text → its share among the values; of the most frequent ones, as many as TFDV keeps.
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
    """A column in two runs; one of both is None where only the other has it.

    Attributes:
      name: of the column.
      before: in the first run.
      now: in the second.
      distance: 0 (alike) to 1: of texts, the largest difference between two shares (L-infinity, as TFDV's drift
        comparator has it); of numbers, the Jensen-Shannon divergence of the histograms, in bits. None where they
        cannot be held against each other.
    """

    name: str
    before: Column | None
    now: Column | None
    distance: float | None

    @property
    def changed(self) -> bool:
        """Whether only one run has the column, or they are worth a word."""
        return None in (self.before, self.now) or (self.distance or 0.0) >= CHANGED


def statistics(store: Store, run: str) -> Artifact | None:
    """What was counted of a run's rows as they were read; a stock Transform counts more, but no split by itself."""
    return next((each for each in store.artifacts(run, "ExampleStatistics") if each.splits), None)


def columns(store: Store, run: str, split: str) -> dict[str, Column]:
    """Name → column, of the rows as they were read.

    Raises:
      InputError: the run has no statistics, or not of this split.
    """
    found = statistics(store, run)
    if found is None:
        raise InputError(f"run {run} has no statistics", "name a run in which StatisticsGen ended well")
    return _read(found, split)


def changes(before: dict[str, Column], now: dict[str, Column]) -> list[ColumnChange]:
    """Every column of both, those that have changed most first."""
    found = [
        ColumnChange(name, before.get(name), now.get(name), _distance(before.get(name), now.get(name)))
        for name in dict.fromkeys((*before, *now))
    ]
    return sorted(found, key=lambda each: -math.inf if each.distance is None else -each.distance)


def _read(artifact: Artifact, split: str) -> dict[str, Column]:
    if split not in artifact.splits:
        raise InputError(
            f"there are no statistics of the split {split!r}{did_you_mean(split, artifact.splits)}", "name another"
        )
    file = Path(artifact.uri) / f"Split-{split}" / "FeatureStats.pb"
    try:
        sets = proto.DatasetFeatureStatisticsList.FromString(file.read_bytes()).datasets
    except (OSError, DecodeError) as error:
        raise InputError(f"the statistics {file} cannot be read: {error}", "run StatisticsGen again") from error
    # With slices there is one set for each; the whole comes first.
    return {each.name: each for each in (_column(one, sets[0].num_examples) for one in sets[0].features)}


def _column(told: proto.FeatureNameStatistics, rows: int) -> Column:
    name = ".".join(told.path.step) or told.name
    kind = proto.FeatureNameStatistics.Type.Name(told.type).lower()
    stats = told.WhichOneof("stats")
    common = getattr(told, stats).common_stats if stats else proto.CommonStatistics()
    missing = 1 - common.num_non_missing / rows if rows else 0.0
    if stats == "num_stats":
        numbers = told.num_stats
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
        texts = told.string_stats
        total = common.tot_num_values or 1
        shares = {bucket.label: bucket.sample_count / total for bucket in texts.rank_histogram.buckets}
        top = texts.top_values[0].value if texts.top_values else None
        return Column(name, kind, rows, missing, distinct=texts.unique, top=top, shares=shares)
    return Column(name, kind, rows, missing)


def _histogram(several: Sequence[proto.Histogram]) -> tuple[tuple[float, float, float], ...]:
    """The histogram by quantiles: its bins are narrow where the values are."""
    kinds = {each.type: each for each in several}
    found = kinds.get(proto.Histogram.QUANTILES) or kinds.get(proto.Histogram.STANDARD)
    total = sum(bucket.sample_count for bucket in found.buckets) if found else 0
    if not found or not total:
        return ()
    return tuple((bucket.low_value, bucket.high_value, bucket.sample_count / total) for bucket in found.buckets)


def _distance(before: Column | None, now: Column | None) -> float | None:
    if before is None or now is None:
        return None
    if before.shares or now.shares:
        texts = {*before.shares, *now.shares}
        return max(abs(before.shares.get(text, 0.0) - now.shares.get(text, 0.0)) for text in texts)
    if before.histogram and now.histogram:
        return _divergence(before.histogram, now.histogram)
    return None


def _divergence(one: Sequence[tuple[float, float, float]], other: Sequence[tuple[float, float, float]]) -> float:
    """Jensen-Shannon divergence (Lin 1991, Divergence Measures Based on the Shannon Entropy), over the edges of both.

    A bin that is a single point (a value so frequent that it fills a quantile) stays one.
    """
    edges = sorted({edge for low, high, _ in (*one, *other) for edge in (low, high)})
    p, q = _mass(one, edges), _mass(other, edges)
    total = 0.0
    for name in {*p, *q}:
        mine, theirs = p.get(name, 0.0), q.get(name, 0.0)
        middle = (mine + theirs) / 2
        total += sum(mass * math.log2(mass / middle) / 2 for mass in (mine, theirs) if mass > 0)
    return min(max(total, 0.0), 1.0)


def _mass(bins: Sequence[tuple[float, float, float]], edges: list[float]) -> dict[tuple[float, float], float]:
    """Piece between two edges, or point → its share; within a bin it goes by the width."""
    found: dict[tuple[float, float], float] = {}
    for low, high, share in bins:
        inner = [edge for edge in edges if low <= edge <= high]
        pieces = list(itertools.pairwise(inner)) or [(low, high)]
        for start, stop in pieces:
            part = share * (stop - start) / (high - low) if high > low else share
            found[start, stop] = found.get((start, stop), 0.0) + part
    return found
