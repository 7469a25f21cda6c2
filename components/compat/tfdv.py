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
"""Distinct values of a column up to which the sketch counts exactly: how many are unique, and each of the top ones."""


def combiners(options: tfdv.StatsOptions) -> list[CombinerStatsGenerator]:
    """Return the generators that TFDV computes statistics with, each of which takes and merges batches.

    GenerateStatistics regroups batches at 1,000 rows or 20 MiB, and counts distinct values one by one in a shuffle,
    which costs several times as much as the rest; so its generators are used without it. The one for distinct values
    is TFDV's sketch, in bounded memory, with more buckets than by default.

    Args:
      options: Without slices or a label for the lift of features, which no combiner computes.
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
        # Otherwise it looks at every value of some batches, one by one, for a metric of Beam.
        length_counter_sampling_rate=-1.0,
    )
    generators = stats_impl.get_generators(options, in_memory=True)
    return [sketch if isinstance(each, TopKUniquesSketchStatsGenerator) else each for each in generators]


def merged_output(
    generators: Sequence[CombinerStatsGenerator], accumulators: Sequence[Any]
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Return the statistics of one data set.

    Args:
      generators: As returned by `combiners`.
      accumulators: The accumulator of each generator.
    """
    # Hook: TFDV looks the function up here, for each numeric column.
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
    """Return the histogram that TFDV's `generate_equi_width_histogram` returns, from arrays instead of messages.

    TFDV makes a message for each of the 1,000 quantiles of a column and compares each of them in Python, which is two
    thirds of the time of StatisticsGen for a table of 1,500 columns.

    Args:
      quantiles: Ascending boundaries, shape [n].
      cumulative_counts: Number or weight of the values up to each boundary, shape [n].
      finite_min: Least finite value.
      finite_max: Greatest finite value.
      num_buckets: Number of buckets of the histogram.
      num_pos_inf: Number or weight of infinite values.
    """
    edges = np.linspace(finite_min, finite_max, 1 + (num_buckets if finite_min < finite_max else 1))
    if num_pos_inf or not np.isfinite([quantiles[0], quantiles[-1], *edges]).all():
        arguments = (quantiles, cumulative_counts, finite_min, finite_max, num_buckets, num_pos_inf)
        return _generate_equi_width_histogram(*arguments)
    low, high = quantiles[:-1], quantiles[1:]
    weights = np.diff(cumulative_counts.astype(np.float64))
    # Intervals with the same upper bound share their weight, and the first ones the weight of the minimum.
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
    # A running sum adds in the order of TFDV, so that not even the rounding differs.
    counts = np.cumsum(shares * weights, axis=1)[:, -1]
    buckets = [
        statistics_pb2.Histogram.Bucket(low_value=low_value, high_value=high_value, sample_count=count)
        for (low_value, high_value), count in zip(itertools.pairwise(edges.tolist()), counts.tolist(), strict=True)
    ]
    return statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD, buckets=buckets)
