"""Transform writes a sample of raw rows with their transformed rows, and compares it with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.base.errors import MachineError
from components.data import examples, skew_sample
from components.data.examples import Examples, Format
from components.features.host import EXPORTED_OPS
from components.features.transforms import numbers
from components.transform import apply, transform_graph
from components.transform.executor import StockExecutor
from tests.support.data.all_operations import NOTHING, SCHEMA, plan_of, small_plan, table
from tests.support.data.example_files import stored
from tests.support.runs.ingest_runs import TWO_WORKERS
from tests.support.runs.transform_runs import Transformed, transform

both_lines = pytest.mark.both_lines

EXTREME = {**NOTHING, "price": 3e38, "row": 10**6, "count": -(2**40), "shop": b"a" * 500}
TABLES = {"train": table(400, 1, EXTREME), "eval": table(100, 2, NOTHING)}


def read_sample(written: Transformed) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the raw rows and the transformed rows of a sample."""
    sample = skew_sample.read(str(written.graph))
    assert sample is not None
    (transformed,) = Examples((sample.transformed_path,), "parquet").batches()
    assert transformed.num_rows == sample.raw.num_rows
    return sample.raw, transformed


def values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the first value of every row, or None if the row does not have a value."""
    rows = batch.column(batch.schema.get_field_index(name)).to_pylist()
    return [row[0] if row else None for row in rows]


def rows_by_key(written: Transformed) -> dict[float, dict[str, Any]]:
    """Return the transformed rows by `row_z_score`, which distinguishes them."""
    rows = [written.rows(split) for split in ("train", "eval")]
    names = set(rows[0])
    joined = {name: np.concatenate([split_rows[name] for split_rows in rows]) for name in names}
    return {
        float(key): {name: joined[name][at].tolist() for name in names} for at, key in enumerate(joined["row_z_score"])
    }


@both_lines
@pytest.mark.parametrize("form", ["parquet", pytest.param("tfrecord", marks=pytest.mark.extended)])
def test_transformed_rows_of_the_sample_equal_the_examples(
    form: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small limits result in several batches, and in several calls of the graph per batch.
    monkeypatch.setattr(examples, "BATCH_ROWS", 90)
    monkeypatch.setattr(transform_graph, "_CALL_ROWS", 40)
    monkeypatch.setattr(skew_sample, "ROWS", 60)
    written = transform(stored(tmp_path / "in", form, TABLES), SCHEMA, tmp_path / "out", small_plan())
    monkeypatch.setattr(examples, "BATCH_ROWS", 1 << 16)
    raw, transformed = read_sample(written)
    assert 60 <= raw.num_rows < 120
    # `row` is unique within a split. Rows of both splits with equal numbers are transformed to equal values.
    row = np.array([np.nan if value is None else value for value in values(raw, "row")], float)
    train_rows = np.array([value for value in values(TABLES["train"], "row") if value is not None], float)
    keys = np.array(values(transformed, "row_z_score"))
    expected = np.where(np.isnan(row), 0, (row - train_rows.mean()) / train_rows.std())
    np.testing.assert_allclose(keys, expected, rtol=1e-5, atol=1e-6)
    known = rows_by_key(written)
    for at, key in enumerate(keys.tolist()):
        bins = transformed.column(transformed.schema.get_field_index("price_piecewise_linear"))[at].as_py()
        price = values(raw, "price")[at]
        assert key in known
        assert (sum(bins) == 0) == (price is None or price <= min(p for p in values(TABLES["train"], "price") if p))
    assert {3e38, None} <= {None if value is None else float(f"{value:.0e}") for value in values(raw, "price")}
    assert b"a" * 500 in values(raw, "shop")


@both_lines
def test_many_or_large_samples_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.RecordBatch.from_pydict({"x": pa.array(np.zeros(100))})
    sample = skew_sample.Sample(np.zeros(100), rows, rows)
    assert [apply._is_large([sample] * count) for count in (1, 15, 16)] == [False, False, True]
    monkeypatch.setattr(apply, "_PENDING_BYTES", 3 * rows.nbytes)
    assert [apply._is_large([sample] * count) for count in (1, 2, 3)] == [False, False, True]
    # A single sample is the result of a merge and must not be merged again.
    monkeypatch.setattr(apply, "_PENDING_BYTES", 1)
    assert [apply._is_large([sample] * count) for count in (1, 2)] == [False, True]


@both_lines
@pytest.mark.extended
def test_sample_does_not_depend_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_sample, "ROWS", 60)
    monkeypatch.setattr(examples, "BATCH_ROWS", 90)
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    by_one_worker = read_sample(transform(examples_artifact, SCHEMA, tmp_path / "one", small_plan()))
    by_two_workers = read_sample(transform(examples_artifact, SCHEMA, tmp_path / "two", small_plan(), beam=TWO_WORKERS))
    for received, expected in zip(by_two_workers, by_one_worker, strict=True):
        assert received.equals(expected)


@both_lines
@pytest.mark.parametrize("materialize", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.extended
def test_rows_that_were_not_written_here_are_transformed_by_the_graph(materialize: bool, tmp_path: Path) -> None:
    form: Format = "tfrecord" if materialize else "parquet"
    executor = {"executor": StockExecutor} if materialize else {}
    examples_artifact = stored(tmp_path / "in", form, TABLES)
    written = transform(examples_artifact, SCHEMA, tmp_path / "out", small_plan(), materialize=materialize, **executor)
    ours = transform(stored(tmp_path / "columns", "parquet", TABLES), SCHEMA, tmp_path / "ours", small_plan())
    received, expected = read_sample(written), read_sample(ours)
    assert received[0].num_rows == 502
    for received_rows, expected_rows in zip(received, expected, strict=True):
        # The files have different names, so the keys and thus the order of the rows differ.
        assert sorted(map(str, received_rows.to_pylist())) == sorted(map(str, expected_rows.to_pylist()))


@both_lines
@pytest.mark.slow
def test_user_function_without_examples_does_not_have_a_sample(tmp_path: Path) -> None:
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    written = transform(examples_artifact, SCHEMA, tmp_path / "out", "own_transforms.two_phases", materialize=False)
    assert skew_sample.read(str(written.graph)) is None


@both_lines
def test_operation_that_differs_from_numpy_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = numbers._scale
    monkeypatch.setattr(numbers, "_scale", lambda *arguments: original(*arguments) + 0.01)
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    message = (
        r"the transform graph differs from its implementation in NumPy: \w+_(z_score|log), row \d+: "
        r"expected \[.*\], received \[.*\]"
    )
    with pytest.raises(MachineError, match=message):
        transform(examples_artifact, SCHEMA, tmp_path / "out", small_plan())


@both_lines
@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, marks=pytest.mark.extended if op in ("z_score", "vocab", "missing") else pytest.mark.slow)
        for op in EXPORTED_OPS
        if op not in ("cross", "image")
    ],
)
def test_every_operation_is_compared_with_numpy(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from components.features import ops
    from components.features.config import OPS

    kind = OPS[op]
    applied = ops.apply

    def apply_with_shift(group: ops.FeatureGroup, *arguments: Any) -> Any:
        shift = int(isinstance(group.op, kind))
        return {name: values + shift if shift else values for name, values in applied(group, *arguments).items()}

    monkeypatch.setattr(ops, "apply", apply_with_shift)
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    with pytest.raises(MachineError, match=rf"its implementation in NumPy: \w+_{op}, row"):
        transform(examples_artifact, SCHEMA, tmp_path / "out", plan_of(op))
