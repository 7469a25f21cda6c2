"""The search for leakage reads a bounded sample of the eval split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.data.examples import Examples, ParquetWriter, to_lists
from components.evaluator import leakage_sample
from components.evaluator.leakage_sample import measure
from components.features import leakage

PER_FILE = 300


def write(folder: Path, files: int) -> Examples:
    """Write files in which the column `copy` repeats the label. In the first file, `copy` is entirely missing."""
    random = np.random.default_rng(6)
    paths = []
    for number in range(files):
        label = (random.random(PER_FILE) < 0.5).astype(np.int64)
        noise = random.normal(size=PER_FILE).astype(np.float32)
        empty = number == 0
        columns = {
            "label": pa.array(label),
            "copy": pa.nulls(PER_FILE) if empty else pa.array(label),
            "noise": pa.array(noise),
            "tags": pa.array([[b"a", b"b"] if value else None for value in label], pa.list_(pa.binary())),
            "number": pa.array(np.arange(PER_FILE) + number * PER_FILE),
        }
        batch = to_lists(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
        path = str(folder / f"data-{number:05d}.parquet")
        file = ParquetWriter(path, batch.schema)
        file.write(batch)
        file.close()
        paths.append(path)
    return Examples(tuple(paths), "parquet")


def test_columns_are_measured_across_files(tmp_path: Path) -> None:
    examples = write(tmp_path, 3)
    leakage_found = measure(examples, ["copy", "noise", "tags", "number", "absent"], "label", "binary")
    assert [(leak.column, leak.kind) for leak in leakage_found.leaks] == [("tags", "filled")]
    leakage_found = measure(Examples(examples.paths[1:], "parquet"), ["copy", "noise"], "label", "binary")
    assert [(leak.column, leak.kind, leak.figure) for leak in leakage_found.leaks] == [("copy", "value", 1.0)]


def test_label_expression_tolerates_a_column_missing_from_a_file(tmp_path: Path) -> None:
    leakage_found = measure(write(tmp_path, 3), ["copy", "noise", "tags"], "copy == 1 and noise < 9", "binary")
    # Where the copy is missing, the label is 0.
    assert [(leak.column, leak.kind) for leak in leakage_found.leaks] == [("copy", "filled"), ("tags", "filled")]
    nothing = measure(write(tmp_path, 1), ["noise"], "copy == 1", "binary")
    assert nothing.unknown == "column copy of the label has no value"


def test_sample_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, judged = write(tmp_path, 5), []
    monkeypatch.setattr(leakage, "ROWS", 600)
    monkeypatch.setattr(leakage_sample, "_FILES", 3)
    find = leakage.find
    monkeypatch.setattr(
        leakage, "find", lambda columns, *arguments: judged.append(columns) or find(columns, *arguments)
    )
    assert measure(examples, ["number", "tags"], "label", "binary").unknown is None
    (columns,) = judged
    # The sample contains the first 200 rows of the files 0, 1 and 3.
    first = [number * PER_FILE + np.arange(200) for number in (0, 1, 3)]
    np.testing.assert_array_equal(columns["number"].to_numpy(), np.concatenate(first))


def test_few_rows_are_reported(tmp_path: Path) -> None:
    leakage_found = measure(write(tmp_path, 1), ["copy"], "label", "binary")
    assert leakage_found.unknown == "300 rows of 500"
