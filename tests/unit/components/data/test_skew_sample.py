"""The sample of raw and transformed rows does not depend on how the data is divided."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.data import skew_sample
from components.data.examples import Examples
from components.data.skew_sample import Predictions, Sample, Sampler

_TYPES = {"number": pa.float32(), "count": pa.int64(), "text": pa.large_binary(), "list": pa.int64()}
SCHEMA = pa.schema({name: pa.large_list(type_) for name, type_ in _TYPES.items()})


def table(rows: int, seed: int = 0) -> pa.RecordBatch:
    """Return random rows in which about 10 % of the values are missing. Extremes are at random positions."""
    random = np.random.default_rng(seed)

    def maybe(values: list[Any]) -> list[Any] | None:
        return None if random.random() < 0.1 else values

    columns = {
        "number": [maybe([float(random.normal())]) for _ in range(rows)],
        "count": [[int(random.integers(0, 50))] for _ in range(rows)],
        "text": [maybe([b"x" * int(random.integers(1, 9))]) for _ in range(rows)],
        "list": [maybe(random.integers(0, 9, random.integers(1, 6)).tolist()) for _ in range(rows)],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def copy_column(raw: pa.RecordBatch) -> pa.RecordBatch:
    """Return a stand-in for the transformed rows: a copy of a column that identifies every row."""
    return pa.RecordBatch.from_arrays([raw.column(0)], ["copy"])


def make_sample(raw: pa.RecordBatch, keys: np.ndarray, call: int = 70) -> Sample:
    """Return the sample of a batch. At most `call` rows are transformed at a time."""
    sampler = Sampler(keys, raw)
    for start in range(0, raw.num_rows, call):
        sampler.add(copy_column(raw.slice(start, call)))
    return sampler.sample()


def flat(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the first value of every row, or None if the row does not have a value."""
    return [values[0] if values else None for values in batch.column(batch.schema.get_field_index(name)).to_pylist()]


def is_same(batch: pa.RecordBatch, expected: pa.RecordBatch) -> bool:
    return str(batch.to_pylist()) == str(expected.to_pylist())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_sample, "ROWS", 20)


def test_small_data_is_sampled_entirely() -> None:
    raw = table(300)
    keys = skew_sample.draw_keys("a/Split-train/data", 0, 0, 300)
    sample = make_sample(raw, keys)
    order = np.argsort(keys)
    assert is_same(sample.raw, skew_sample.take(raw, order))
    assert is_same(sample.transformed, copy_column(sample.raw))


@pytest.mark.usefixtures("small")
def test_sample_contains_random_rows_and_the_extremes_of_every_column() -> None:
    raw, keys = table(5000), np.random.default_rng(1).random(5000)
    selected = skew_sample.select(keys, raw)
    assert set(np.argsort(keys)[:20]) <= set(selected)
    assert len(selected) <= 20 + 5 * 4
    sample = skew_sample.take(raw, selected)
    for name in ("number", "count"):
        values = [value for value in flat(raw, name) if value is not None]
        assert {min(values), max(values)} <= set(flat(sample, name))
    lengths = [len(text) for text in flat(raw, "text") if text is not None]
    assert {min(lengths), max(lengths)} <= {len(text) for text in flat(sample, "text") if text is not None}
    counts = [len(values) for values in raw.column(3).to_pylist() if values]
    assert {min(counts), max(counts)} <= {len(values) for values in sample.column(3).to_pylist() if values}
    for name in ("number", "text", "list"):
        assert None in flat(sample, name), name


@pytest.mark.usefixtures("small")
def test_sample_contains_nan_and_the_finite_extremes() -> None:
    values = [*np.linspace(-3, 3, 1000).tolist(), float("nan"), 7.0, *[0.5] * 1000, -9.0, float("nan")]
    raw = pa.RecordBatch.from_arrays([pa.array([[value] for value in values], pa.large_list(pa.float32()))], ["number"])
    keys = np.arange(len(values)) / len(values)
    received = flat(skew_sample.take(raw, skew_sample.select(keys, raw)), "number")
    assert {7.0, -9.0} <= set(received)
    assert np.isnan(received).any()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(5))
def test_samples_of_parts_merge_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_sample, "_BYTES", 1200)
    random = np.random.default_rng(seed)
    raw, keys = table(900, seed), random.random(900)
    # The batches of a file are in order, but Beam merges their bundles in any order.
    bounds = np.linspace(0, 900, 10).astype(int)
    batches = [make_sample(raw.slice(start, end - start), keys[start:end]) for start, end in itertools.pairwise(bounds)]
    whole = skew_sample.merge(batches)
    shuffled = [batches[at] for at in random.permutation(len(batches))]
    first, second, third = shuffled[:2], shuffled[2:7], shuffled[7:]
    merged = skew_sample.merge([skew_sample.merge(third), skew_sample.merge([*first, skew_sample.merge(second)])])
    assert is_same(merged.raw, whole.raw)
    assert is_same(merged.transformed, whole.transformed)
    assert is_same(whole.transformed, copy_column(whole.raw))
    np.testing.assert_array_equal(merged.keys, np.sort(whole.keys))
    numbers = [value for value in flat(raw, "number") if value is not None]
    assert {min(numbers), max(numbers)} <= set(flat(whole.raw, "number"))


@pytest.mark.usefixtures("small")
def test_extremes_of_a_wide_table_are_limited_to_some_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_sample, "_COLUMNS", 2)
    columns = [
        pa.array([[int(row == number)] for row in range(100)], pa.large_list(pa.int64())) for number in range(90)
    ]
    raw = pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(90)])
    # The maxima of the two columns are in rows 0 and 1, and their minima are in rows 1 and 0.
    keys = 1 - np.arange(100) / 100
    assert sorted(skew_sample.select(keys, raw).tolist()) == [0, 1, *range(80, 100)]


def test_sample_of_large_rows_is_smaller() -> None:
    texts = [[bytes(1 << 20)] for _ in range(40)]
    raw = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_list(pa.large_binary()))], ["picture"])
    selected = skew_sample.select(np.linspace(0, 0.9, 40), raw)
    assert selected.tolist() == list(range(16))


def test_keys_do_not_depend_on_the_run() -> None:
    keys = [skew_sample.draw_keys(f"{run}/Split-train/data-0", 1, 0, 5) for run in ("/a/1", "gs://b/2")]
    np.testing.assert_array_equal(*keys)
    other_keys = [
        skew_sample.draw_keys("/a/1/Split-eval/data-0", 1, 0, 5),
        skew_sample.draw_keys("/a/1/Split-train/data-0", 2, 0, 5),
    ]
    for split_keys in other_keys:
        assert not np.isin(keys[0], split_keys).any()


@pytest.mark.usefixtures("small")
def test_sample_is_stored_with_the_extremes_first(tmp_path: Path) -> None:
    raw = table(500)
    sample = make_sample(raw, np.random.default_rng(2).random(500))
    skew_sample.write(sample, str(tmp_path))
    stored = skew_sample.read(str(tmp_path))
    assert stored is not None
    assert sorted(map(str, stored.raw.to_pylist())) == sorted(map(str, sample.raw.to_pylist()))
    (transformed,) = Examples((stored.transformed_path,), "parquet").batches()
    assert is_same(transformed, copy_column(stored.raw))
    numbers = [value for value in flat(raw, "number") if value is not None]
    assert {min(numbers), max(numbers)} <= set(flat(stored.raw.slice(0, 20), "number"))


def test_folder_without_a_sample_is_read_as_none(tmp_path: Path) -> None:
    assert skew_sample.read(str(tmp_path)) is None
    assert skew_sample.read_predictions(str(tmp_path)) is None


def test_stored_predictions_are_read_back(tmp_path: Path) -> None:
    outputs = {
        "probability": np.array([[0.5], [np.nan]], np.float32),
        "classes": np.array([[b"a", b"\xff"], [b"a", b""]], object),
        "rank": np.array([[1], [2**40]], np.int64),
    }
    skew_sample.write_predictions(Predictions(np.array([b"one", b""], object), outputs), str(tmp_path))
    received = skew_sample.read_predictions(str(tmp_path))
    assert received is not None
    assert received.examples.tolist() == [b"one", b""]
    assert received.outputs.keys() == outputs.keys()
    for name, values in outputs.items():
        assert received.outputs[name].dtype == values.dtype
        np.testing.assert_array_equal(received.outputs[name], values)
