"""Parts of TensorFlow Data Validation (TFDV) that StatisticsGen uses and that its public interface does not document.

Checked with TFDV 1.16 and 1.21.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators.stats_generator import CombinerStatsGenerator
from tensorflow_data_validation.statistics.generators.top_k_uniques_sketch_stats_generator import (
    TopKUniquesSketchStatsGenerator,
)
from tensorflow_data_validation.utils import quantiles_util
from tensorflow_metadata.proto.v0 import statistics_pb2

DISTINCT_VALUES = 1 << 14
"""Number of distinct values of a column up to which the sketch counts unique and top values exactly."""


def combiners(options: tfdv.StatsOptions) -> list[CombinerStatsGenerator]:
    """Return TFDV's generators, which compute the statistics.

    They are used without TFDV's GenerateStatistics, which regroups batches at 1,000 rows or 20 MiB. It also counts
    distinct values one by one in a shuffle, which costs several times as much as all other statistics. Here TFDV's
    sketch counts distinct values in bounded memory, with more buckets than by default.

    Args:
      options: Options of the statistics. Slices and the lift of features are not supported, because combiners cannot
        compute them.

    Returns:
      The generators. They add batches to accumulators and merge accumulators.
    """
    sketch = TopKUniquesSketchStatsGenerator(
        schema=options.schema,
        example_weight_map=options.example_weight_map,
        num_top_values=options.num_top_values,
        num_rank_histogram_buckets=options.num_rank_histogram_buckets,
        frequency_threshold=options.frequency_threshold,
        weighted_frequency_threshold=options.weighted_frequency_threshold,
        num_misragries_buckets=DISTINCT_VALUES,
        num_kmv_buckets=DISTINCT_VALUES,
        # A positive rate would make the sketch loop over every value of some batches, for a Beam metric.
        length_counter_sampling_rate=-1.0,
    )
    generators = stats_impl.get_generators(options, in_memory=True)
    return [sketch if isinstance(generator, TopKUniquesSketchStatsGenerator) else generator for generator in generators]


def merge_output(
    generators: Sequence[CombinerStatsGenerator], accumulators: Sequence[Any]
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Return the statistics of one data set.

    Args:
      generators: Generators as returned by `combiners`.
      accumulators: One accumulator per generator, in the same order.
    """
    # Hook: TFDV looks up this function in the module for every numeric column.
    quantiles_util.generate_equi_width_histogram = make_equal_width_histogram
    return stats_impl.extract_statistics_output(accumulators, generators)


_generate_equi_width_histogram = quantiles_util.generate_equi_width_histogram


def make_equal_width_histogram(
    quantiles: npt.NDArray[np.float64],
    cumulative_counts: npt.NDArray[np.float64],
    finite_min: float,
    finite_max: float,
    num_buckets: int,
    num_pos_inf: float,
) -> statistics_pb2.Histogram:
    """Return the same histogram as TFDV's `generate_equi_width_histogram`, computed with NumPy.

    TFDV creates a message for each of a column's 1,000 quantiles and compares them in a Python loop. For a table of
    1,500 columns, this takes two thirds of the time of StatisticsGen.

    Args:
      quantiles: Boundaries of the quantiles in ascending order, float64 [n].
      cumulative_counts: Number or total weight of the values up to each boundary, float64 [n].
      finite_min: Smallest finite value.
      finite_max: Largest finite value.
      num_buckets: Number of buckets of the histogram.
      num_pos_inf: Number or total weight of positive infinite values.
    """
    edges = np.linspace(finite_min, finite_max, 1 + (num_buckets if finite_min < finite_max else 1))
    if num_pos_inf or not np.isfinite([quantiles[0], quantiles[-1], *edges]).all():
        arguments = (quantiles, cumulative_counts, finite_min, finite_max, num_buckets, num_pos_inf)
        return _generate_equi_width_histogram(*arguments)
    low, high = quantiles[:-1], quantiles[1:]
    weights = np.diff(cumulative_counts.astype(np.float64))
    # Intervals with the same upper bound share their weight equally. The first interval, and intervals equal to it,
    # also share the weight of the minimum.
    starts = np.flatnonzero(np.append(True, np.diff(high) != 0))
    lengths = np.diff(starts, append=high.size)
    weights = np.repeat(np.add.reduceat(weights, starts) / lengths, lengths)
    first = (low == low[0]) & (high == high[0])
    weights[first] += cumulative_counts[0] / first.sum()
    lower, upper = edges[:-1, np.newaxis], edges[1:, np.newaxis]
    is_point = low == high
    inside = np.clip(np.minimum(high, upper) - np.maximum(low, lower), 0, None)
    on_point = (low > lower) & (low <= upper) | (low == edges[0]) & (lower == edges[0])
    shares = np.where(is_point, on_point, inside / (high - low + is_point))
    # Use a cumulative sum, which adds the numbers in the same order as TFDV, so that the rounding is the same too.
    counts = np.cumsum(shares * weights, axis=1)[:, -1]
    buckets = [
        statistics_pb2.Histogram.Bucket(low_value=low_value, high_value=high_value, sample_count=count)
        for (low_value, high_value), count in zip(itertools.pairwise(edges.tolist()), counts.tolist(), strict=True)
    ]
    return statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD, buckets=buckets)
