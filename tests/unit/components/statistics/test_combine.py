"""Combined statistics depend neither on the division into batches nor on the order of merging."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from components.data.examples import to_lists
from components.statistics.combine import StatisticsFn

pytestmark = pytest.mark.both_lines

_VALUES = {
    pa.int64(): st.integers(-(1 << 40), 1 << 40),
    # Exclude -0.0, because it equals 0.0 and either of them may be returned as the quantile.
    pa.float32(): st.floats(-(2.0**60), 2.0**60, width=32).map(lambda value: value + 0.0),
    pa.binary(): st.binary(max_size=3),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 12))
    columns = {"nothing": pa.nulls(rows)}
    for name in draw(st.lists(st.sampled_from("abc"), unique=True)):
        dtype = draw(st.sampled_from(sorted(_VALUES, key=str)))
        lists = st.none() | st.lists(_VALUES[dtype], max_size=3)
        columns[name] = pa.array(draw(st.lists(lists, min_size=rows, max_size=rows)), pa.list_(dtype))
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture(scope="module")
def combine() -> StatisticsFn:
    result = StatisticsFn(tfdv.StatsOptions().to_json())
    result.setup()
    return result


def statistics(combine: StatisticsFn, *workers: list[pa.RecordBatch]) -> Any:
    """Return the statistics of the batches of several workers, merged in their order."""
    accumulators = []
    for batches in workers:
        accumulator = combine.create_accumulator()
        for batch in batches:
            accumulator = combine.add_input(accumulator, batch)
        accumulators.append(combine.compact(accumulator))
    merged = json_format.MessageToDict(combine.extract_output(combine.merge_accumulators(accumulators)))
    (dataset,) = merged["datasets"]
    for feature in dataset.get("features", []):
        # Features are sorted because their order follows the first batch. Means and deviations are dropped because they
        # depend on the order of the sums.
        for name in ("mean", "stdDev"):
            feature.get("numStats", {}).pop(name, None)
    return {**dataset, "features": sorted(dataset.get("features", []), key=lambda feature: str(feature["path"]))}


@settings(max_examples=25, deadline=None)
@given(table=tables(), order=st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_the_parts_or_their_order(
    combine: StatisticsFn, table: pa.RecordBatch, order: random.Random
) -> None:
    batch = to_lists(table)
    rows = [batch.slice(at, 1) for at in range(batch.num_rows)]
    order.shuffle(rows)
    cut = order.randint(0, len(rows))
    whole = statistics(combine, [batch])
    assert statistics(combine, rows[:cut], [], rows[cut:]) == whole
    assert statistics(combine, *([row] for row in rows)) == whole


def test_missing_batch_does_not_add_rows(combine: StatisticsFn) -> None:
    assert combine.add_input(combine.create_accumulator(), None) == combine.create_accumulator()
    assert statistics(combine, []) == {"features": []}
