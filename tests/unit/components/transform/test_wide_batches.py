"""The analysis of a wide table calls the graph with a few rows at a time, which bounds the memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from components.features.plan import FeaturePlan
from components.transform import declared_analysis
from components.transform.declared_analysis import Declaration, _Requirements
from tests.support.runs.peak_memory import measure_growth

COLUMNS, ROWS = 100, 40_000


def wide_batch() -> pa.RecordBatch:
    draw = np.random.default_rng(0)
    offsets = pa.array(np.arange(ROWS + 1, dtype=np.int64))
    columns = {
        f"x{number}": pa.LargeListArray.from_arrays(offsets, pa.array(draw.normal(size=ROWS).astype(np.float32)))
        for number in range(COLUMNS)
    }
    columns["y"] = pa.LargeListArray.from_arrays(offsets, pa.array(draw.integers(0, 2, ROWS)))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def declaration() -> Declaration:
    schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=f"x{number}", type=schema_pb2.FLOAT) for number in range(COLUMNS)]
        + [schema_pb2.Feature(name="y", type=schema_pb2.INT)]
    )
    columns = {f"x{number}": ["z_score", {"piecewise_linear": {"bins": 8}}] for number in range(COLUMNS)}
    plan = FeaturePlan.model_validate({"features": {"columns": columns}, "labels": [{"text": "y"}], "task": "binary"})
    return Declaration(plan.model_dump_json(), schema.SerializeToString(), "parquet")


def measure_peak(requirements: _Requirements, batch: pa.RecordBatch) -> tuple[declared_analysis.Arrays, int]:
    """Return the arrays, and the peak memory in bytes of computing and holding them."""
    with measure_growth() as growth:
        arrays = requirements.arrays(batch)
    return arrays, growth.peak_bytes


@pytest.mark.extended
def test_memory_of_the_analysis_of_a_wide_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements, batch = _Requirements(declaration()), wide_batch()
    requirements.arrays(batch.slice(0, 10))
    arrays, peak = measure_peak(requirements, batch)
    # The bound covers two float64 matrices, their parts and one call. A single call would need about 110 bytes
    # per value.
    assert peak < 80 * COLUMNS * ROWS
    monkeypatch.setattr(declared_analysis, "_CALL_VALUES", COLUMNS * ROWS * 2)
    # Compare only the two groups of columns, because texts of the label are deduplicated per call.
    for received, expected in zip(arrays[:2], requirements.arrays(batch)[:2], strict=True):
        np.testing.assert_array_equal(received[0], expected[0])
    values = np.stack([np.asarray(column.values) for column in batch.columns[:-1]], axis=1)
    np.testing.assert_array_equal(arrays[0][0], values)
