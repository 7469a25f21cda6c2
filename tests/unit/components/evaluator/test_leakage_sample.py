"""The sample of the eval split in which leakage is looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.data.examples import Examples, ParquetWriter, to_lists
from components.evaluator import leakage_sample
from components.evaluator.leakage_sample import measure
from components.features import leakage

PER_FILE = 300


class LabelColumn:
    """Stands for the model, which computes the labels: here a column has them."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def labels(self, batch: pa.RecordBatch) -> Any:
        self.rows.append(batch.num_rows)
        return batch.column(batch.schema.get_field_index("label")).flatten().to_numpy()


def write(folder: Path, files: int) -> Examples:
    """Files with a label that a column copies; in the first file this column has no values, as have others."""
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
            "tags": pa.array([[b"a", b"b"] if each else None for each in label], pa.list_(pa.binary())),
            "number": pa.array(np.arange(PER_FILE) + number * PER_FILE),
        }
        batch = to_lists(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
        path = str(folder / f"data-{number:05d}.parquet")
        file = ParquetWriter(path, batch.schema)
        file.write(batch)
        file.close()
        paths.append(path)
    return Examples(tuple(paths), "parquet")


def test_columns_are_measured_over_several_files(tmp_path: Path) -> None:
    examples, model = write(tmp_path, 3), LabelColumn()
    found = measure(examples, ["copy", "noise", "tags", "number", "absent"], model.labels, "binary")
    assert [(leak.column, leak.kind) for leak in found.leaks] == [("tags", "filled")]
    assert model.rows == [PER_FILE] * 3
    found = measure(Examples(examples.paths[1:], "parquet"), ["copy", "noise"], LabelColumn().labels, "binary")
    assert [(leak.column, leak.kind, leak.figure) for leak in found.leaks] == [("copy", "value", 1.0)]


def test_sample_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, model = write(tmp_path, 5), LabelColumn()
    monkeypatch.setattr(leakage, "ROWS", 600)
    monkeypatch.setattr(leakage_sample, "_FILES", 3)
    assert measure(examples, ["tags"], model.labels, "binary").unknown is None
    assert model.rows == [200] * 3


def test_few_rows_are_reported(tmp_path: Path) -> None:
    found = measure(write(tmp_path, 1), ["copy"], LabelColumn().labels, "binary")
    assert found.unknown == "300 rows of 500"
