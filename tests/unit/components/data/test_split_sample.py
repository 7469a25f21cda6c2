"""Every row of a split is equally likely to be sampled, and time and memory are bounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.data import split_sample
from components.data.examples import Examples, ParquetWriter, to_lists
from components.data.split_sample import draw


def write(folder: Path, sizes: list[int]) -> Examples:
    """Write files of consecutive numbers. In the first file, the column `some` is entirely missing."""
    paths, start = [], 0
    for number, size in enumerate(sizes):
        values = {
            "number": pa.array(np.arange(start, start + size)),
            "some": pa.nulls(size) if number == 0 else pa.array(np.full(size, b"text" * 10, object)),
        }
        batch = to_lists(pa.RecordBatch.from_arrays(list(values.values()), list(values)))
        path = str(folder / f"data-{number:05d}.parquet")
        file = ParquetWriter(path, batch.schema)
        file.write(batch)
        file.close()
        paths.append(path)
        start += size
    return Examples(tuple(paths), "parquet")


def numbers(batch: pa.RecordBatch) -> list[int]:
    drawn = batch.column(batch.schema.get_field_index("number")).flatten().to_pylist()
    assert len(drawn) == batch.num_rows
    return list(drawn)


def test_rows_of_all_files_are_equally_likely(tmp_path: Path):
    examples = write(tmp_path, [100, 1000, 300])
    drawn = [numbers(draw(examples, 140, seed)) for seed in range(50)]
    assert all(len(set(sample_numbers)) == 140 for sample_numbers in drawn)
    shares_of_files = np.histogram(np.concatenate(drawn), [0, 100, 1100, 1400])[0] / (50 * 140)
    np.testing.assert_allclose(shares_of_files, np.array([100, 1000, 300]) / 1400, atol=0.02)
    assert numbers(draw(examples, 140)) == numbers(draw(examples, 140))


def test_small_split_is_drawn_entirely_with_its_missing_values(tmp_path: Path):
    batch = draw(write(tmp_path, [3, 4]), 100)
    assert numbers(batch) == list(range(7))
    assert batch.column(batch.schema.get_field_index("some")).to_pylist() == [None] * 3 + [[b"text" * 10]] * 4


def test_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    examples = write(tmp_path, [10] * 12)
    drawn = numbers(draw(examples, 1000))
    assert len(drawn) == 80
    assert len({number // 10 for number in drawn}) == 8
    monkeypatch.setattr(split_sample, "_BYTES", 1000)
    assert 10 < len(numbers(draw(examples, 1000))) < 30
