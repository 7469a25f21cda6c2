"""`data.sample` keeps shares of the rows, and weighted sums equal the sums of all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.ingest.config import SAMPLING_WEIGHT
from tests.support.runs.ingest_runs import (
    TWO_WORKERS,
    by_split,
    counts,
    data,
    ingest,
    ingest_error,
    run_without_beam,
    types,
)

ROWS = 8_000


def write_rows(path: Path, reverse: bool = False) -> Path:
    """Write rows; a twentieth has label 1."""
    lines = [f"{number},{number * 0.37:.2f},{int(number % 20 == 0)},{'abc'[number % 3]}" for number in range(ROWS)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["id,amount,label,kind", *(reversed(lines) if reverse else lines)]))
    return path


def read_rows(path: Path, folder: Path, **section: Any) -> list[dict[str, Any]]:
    result = run_without_beam(data(path, **section), folder)
    return [row for rows in result.rows.values() for row in rows]


def test_fraction_is_kept_of_every_split_without_weights(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv")
    examples = ingest(data(path, sample=0.25, split={"train": 3, "eval": 1}), tmp_path / "out", beam=TWO_WORKERS)
    found = counts(examples)
    # Four standard deviations of the binomial distribution.
    error = 4 * np.sqrt(ROWS * 0.25 * 0.75)
    assert found["sampled_out"] == pytest.approx(0.75 * ROWS, abs=error)
    assert found["train"] == pytest.approx(0.25 * 0.75 * ROWS, abs=error)
    assert SAMPLING_WEIGHT not in types(examples)


def test_chosen_rows_depend_on_neither_order_nor_type(tmp_path: Path) -> None:
    chosen = {row["id"] for row in read_rows(write_rows(tmp_path / "a.csv"), tmp_path / "a", sample=0.1)}
    path = write_rows(tmp_path / "b" / "b.csv", reverse=True)
    # The last line makes a second pass necessary, where whole numbers are floats.
    path.write_text(f"{path.read_text()}\n-0.5,1,0.5,z")
    again = {row["id"] for row in read_rows(path, tmp_path / "again", sample=0.1)}
    assert chosen == again - {-0.5}
    more = {row["id"] for row in read_rows(write_rows(tmp_path / "a.csv"), tmp_path / "more", sample=0.2)}
    assert chosen < more, "a larger sample contains the smaller one"


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ({"label": "label", "sample": {"label": {0: 0.1}}}, {0: 10.0, 1: 1.0}),
        ({"label": "label > 0", "sample": {"label": {"0": 0.1, "1": 0.5}}}, {0: 10.0, 1: 2.0}),
        (
            {"label": "kind", "task": "multiclass", "sample": {"label": {"a": 0.1, "c": 0.5}}},
            {"a": 10.0, "b": 1.0, "c": 2.0},
        ),
    ],
)
def test_weighted_rows_of_a_label_are_as_many_as_all(tmp_path: Path, section: Any, values: dict[Any, float]) -> None:
    rows = read_rows(write_rows(tmp_path / "rows.csv"), tmp_path / "out", **section)
    label = "kind" if section["label"] == "kind" else "label"
    everything = read_rows(tmp_path / "rows.csv", tmp_path / "all", label="label")
    for value, weight in values.items():
        expected = sum(row[label] == value for row in everything)
        kept = [row for row in rows if row[label] == value]
        assert {row[SAMPLING_WEIGHT] for row in kept} == {weight}
        # Four standard deviations of the number of kept rows.
        error = 4 * np.sqrt(expected * (1 - 1 / weight) / weight)
        assert len(kept) == pytest.approx(expected / weight, abs=error)
        amounts = sum(row["amount"] for row in everything if row[label] == value)
        assert sum(row["amount"] for row in kept) * weight == pytest.approx(amounts, rel=0, abs=0.2 * amounts)


def test_value_that_the_label_does_not_have_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv")
    error = ingest_error(data(path, label="label", sample={"label": {7: 0.1}}), tmp_path / "out")
    assert error.headline == f"data.sample.label: expected rows with 'label == 7', received none of {ROWS} rows"


def test_examples_of_tensorflow_get_the_weight(tmp_path: Path) -> None:
    """`run_without_beam` compares both formats; here the rows come from TFRecords, whose records would be copied."""
    path = write_rows(tmp_path / "rows.csv")
    first = ingest(data(path), tmp_path / "first", stored="tfrecord")
    config = data(Path(first.uri, "Split-train"), label="label", sample={"label": {0: 0.1}})
    rows = [row for part in by_split(ingest(config, tmp_path / "out", stored="tfrecord")).values() for row in part]
    assert {(row["label"], row[SAMPLING_WEIGHT]) for row in rows} == {(0, 10.0), (1, 1.0)}
