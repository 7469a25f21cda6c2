"""Parts of TensorFlow Data Validation (TFDV) that StatisticsGen uses and that its public interface does not document.

Checked with TFDV 1.16 and 1.21.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators.stats_generator import CombinerStatsGenerator
from tensorflow_data_validation.statistics.generators.top_k_uniques_sketch_stats_generator import (
    TopKUniquesSketchStatsGenerator,
)
from tensorflow_metadata.proto.v0 import statistics_pb2

DISTINCT_VALUES = 1 << 14
"""Distinct values of a column up to which the sketch counts exactly: how many are unique, and each of the top ones."""


def combiners(options: tfdv.StatsOptions) -> list[CombinerStatsGenerator]:
    """Returns the generators that TFDV computes statistics with, each of which takes and merges batches.

    GenerateStatistics regroups batches at 1,000 rows or 20 MiB, and counts distinct values one by one in a shuffle,
    which costs several times as much as the rest; so its generators are used without it. The one for distinct values
    is TFDV's sketch, in bounded memory, with more buckets than by default.

    Args:
      options: without slices or a label for the lift of features, which no combiner computes.
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
    """Returns the statistics of one data set, from the accumulator of each of the `combiners`."""
    return stats_impl.extract_statistics_output(accumulators, generators)
