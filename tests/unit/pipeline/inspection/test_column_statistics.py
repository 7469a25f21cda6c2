"""Tests for the column statistics that TFDV computed, and for their distances between two runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2 as proto

from components.base.errors import InputError
from pipeline.core.metadata.store import Store
from pipeline.inspection.column_statistics import changes, columns
from tests.support.data.tolerances import float64_sum
from tests.support.runs.store_writer import Writer


def write_statistics(
    writer: Writer, folder: Path, run: str, prices: list[tuple[float, float, int]], plans: dict[str, int]
) -> None:
    """Record statistics of ten rows with the columns `price` and `plan`, in the layout of StatisticsGen.

    Args:
      writer: Writer of the metadata store.
      folder: Folder of the statistics.
      run: ID of the run.
      prices: Bins of the histogram of `price`, as (from, to, count).
      plans: Counts of the texts in `plan`.
    """
    statistics = proto.DatasetFeatureStatisticsList()
    whole = statistics.datasets.add(num_examples=10)
    price = whole.features.add(type=proto.FeatureNameStatistics.FLOAT)
    price.path.step.append("price")
    numbers = price.num_stats
    numbers.common_stats.num_non_missing = numbers.common_stats.tot_num_values = sum(count for *_, count in prices)
    numbers.mean, numbers.num_zeros = 2.5, 2
    histogram = numbers.histograms.add(type=proto.Histogram.QUANTILES)
    for low, high, count in prices:
        histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
    plan = whole.features.add(type=proto.FeatureNameStatistics.STRING)
    plan.path.step.append("plan")
    texts = plan.string_stats
    texts.unique, texts.common_stats.num_non_missing = len(plans), 10
    texts.common_stats.tot_num_values = sum(plans.values())
    for text, count in plans.items():
        texts.rank_histogram.buckets.add(label=text, sample_count=count)
        texts.top_values.add(value=text, frequency=count)
    split_folder = folder / run / "Split-train"
    split_folder.mkdir(parents=True)
    (split_folder / "FeatureStats.pb").write_bytes(statistics.SerializeToString())
    artifact = writer.artifact("ExampleStatistics", str(folder / run), split_names='["train"]')
    writer.execution(run, "StatisticsGen", outputs=[artifact])


def test_statistics_of_a_column_are_read(writer: Writer, tmp_path: Path):
    write_statistics(writer, tmp_path, "r1", [(0, 1, 4), (1, 9, 4)], {"a": 6, "b": 4})
    statistics = columns(Store(tmp_path / "metadata.db"), "r1", "train")
    price, plan = statistics["price"], statistics["plan"]
    assert (price.type, price.rows, price.mean, price.zeros) == ("float", 10, 2.5, 0.25)
    assert price.missing == float64_sum(2).approx(0.2)
    assert price.histogram == ((0, 1, 0.5), (1, 9, 0.5))
    assert (plan.type, plan.distinct, plan.top, plan.shares) == ("string", 2, "a", {"a": 0.6, "b": 0.4})


@pytest.mark.parametrize(
    ("prices", "distance"),
    [
        ([(0, 1, 4), (1, 9, 4)], 0.0),
        # The same distribution with different bins.
        ([(0, 1, 4), (1, 5, 2), (5, 9, 2)], 0.0),
        ([(20, 30, 8)], 1.0),
        # The upper half of the distribution has moved to the lower bin, whose share is now 1 instead of 1/2.
        ([(0, 1, 8)], 0.5 * (0.5 * math.log2(0.5 / 0.75) + math.log2(1 / 0.75)) + 0.5 * 0.5 * math.log2(0.5 / 0.25)),
        # All values are equal.
        ([(3, 3, 8)], 1.0),
    ],
)
def test_distance_between_numeric_columns(
    writer: Writer, tmp_path: Path, prices: list[tuple[float, float, int]], distance: float
):
    write_statistics(writer, tmp_path, "r1", [(0, 1, 4), (1, 9, 4)], {"a": 10})
    write_statistics(writer, tmp_path, "r2", prices, {"a": 10})
    store = Store(tmp_path / "metadata.db")
    changes_by_name = {
        change.name: change for change in changes(columns(store, "r1", "train"), columns(store, "r2", "train"))
    }
    assert changes_by_name["price"].distance == pytest.approx(distance, abs=1e-9)
    assert changes_by_name["plan"].distance == 0


def test_distance_between_text_columns_is_the_largest_difference_of_shares(writer: Writer, tmp_path: Path):
    write_statistics(writer, tmp_path, "r1", [(0, 1, 4)], {"a": 6, "b": 4})
    write_statistics(writer, tmp_path, "r2", [(0, 1, 4)], {"a": 3, "c": 7})
    store = Store(tmp_path / "metadata.db")
    before, now = (columns(store, run, "train") for run in ("r1", "r2"))
    first, *_ = changes(before, now)
    assert (first.name, first.distance) == ("plan", float64_sum(2).approx(0.7))
    del before["plan"]
    [unmatched] = [change for change in changes(before, now) if change.distance is None]
    assert (unmatched.name, unmatched.before) == ("plan", None)


def test_missing_statistics_are_reported(writer: Writer, tmp_path: Path):
    write_statistics(writer, tmp_path, "r1", [(0, 1, 4)], {"a": 6})
    writer.execution("r2", "StatisticsGen", "FAILED")
    store = Store(tmp_path / "metadata.db")
    with pytest.raises(InputError, match="did you mean 'train'"):
        columns(store, "r1", "trian")
    with pytest.raises(InputError, match="run r2 has no statistics"):
        columns(store, "r2", "train")
    (tmp_path / "r1" / "Split-train" / "FeatureStats.pb").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read"):
        columns(store, "r1", "train")
