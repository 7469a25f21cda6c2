"""The undocumented parts of TFDV that components.compat.tfdv uses exist, and compute what TFDV's own transform does."""

from __future__ import annotations

import inspect

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from apache_beam.testing.util import assert_that
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators import stats_generator
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx_bsl import sketches

from components.compat import tfdv as compat

pytestmark = pytest.mark.both_lines
BATCH = pa.RecordBatch.from_pydict(
    {
        "number": pa.array([[1.5], [2.5], None, []] * 5, pa.large_list(pa.float32())),
        "word": pa.array([[b"a", b"b"], [b"a"], None, [b"c"]] * 5, pa.large_list(pa.large_binary())),
    }
)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (stats_impl.get_generators, {"options", "in_memory"}),
        (stats_impl.extract_statistics_output, {"partial_stats", "stats_generators"}),
    ],
)
def test_the_functions_take_our_arguments(function: object, parameters: set[str]) -> None:
    actual = set(inspect.signature(function).parameters)
    assert parameters <= actual, f"TFDV changed {function}: it lacks {parameters - actual}; change compat.tfdv"


def test_every_generator_is_a_combiner_and_one_is_our_sketch() -> None:
    generators = compat.combiners(tfdv.StatsOptions())
    assert all(isinstance(generator, stats_generator.CombinerStatsGenerator) for generator in generators)
    sketch, stock_generators = (
        compat.TopKUniquesSketchStatsGenerator,
        stats_impl.get_generators(tfdv.StatsOptions(), in_memory=True),
    )
    assert [type(generator) for generator in generators] == [type(generator) for generator in stock_generators]
    assert sum(isinstance(generator, sketch) for generator in generators) == 1


@pytest.mark.extended
def test_the_output_is_that_of_tfdvs_transform() -> None:
    generators = compat.combiners(tfdv.StatsOptions())
    accumulators = [generator.add_input(generator.create_accumulator(), BATCH) for generator in generators]
    ours = compat.merge_output(generators, accumulators)

    def check(stock: list[statistics_pb2.DatasetFeatureStatisticsList]) -> None:
        assert stock == [ours]

    with beam.Pipeline() as pipeline:
        assert_that(pipeline | beam.Create([BATCH]) | tfdv.GenerateStatistics(), check)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).normal(size=3000),
        np.random.default_rng(2).integers(0, 4, 500).astype(float),
        np.random.default_rng(3).lognormal(sigma=3, size=50),
        np.repeat([0.0, 1.0], [990, 10]),
        np.append(np.zeros(900), np.random.default_rng(4).normal(size=100)),
        np.full(20, 2.5),
        np.array([1.0]),
        np.array([-np.inf, 0.0, 1.0, 2.0]),
        np.array([0.0, 1.0, 2.0, np.inf, np.inf]),
        np.array([-1.7e308, 1.7e308]),
    ],
    ids=["normal", "integers", "skewed", "rare", "spike", "constant", "single", "low_inf", "high_inf", "huge"],
)
def test_the_histogram_from_arrays_is_that_of_tfdv(values: npt.NDArray[np.float64]) -> None:
    sketch = sketches.QuantilesSketch(0.01, len(values), 1)
    sketch.AddValues(pa.array(values))
    quantiles, counts = (
        array.flatten().to_numpy(zero_copy_only=False) for array in sketch.GetQuantilesAndCumulativeWeights(1000)
    )
    finite = values[np.isfinite(values)]
    arguments = (quantiles, counts, finite.min(), finite.max(), 10, float(np.isposinf(values).sum()))
    with np.errstate(over="ignore", invalid="ignore"):
        ours, stock = compat.make_equal_width_histogram(*arguments), compat._generate_equi_width_histogram(*arguments)
    assert ours == stock
    rows = sum(bucket.sample_count for bucket in ours.buckets)
    # TFDV omits the buckets if the width of a bucket overflows.
    assert rows == pytest.approx(len(values), abs=1e-6) or not ours.buckets
