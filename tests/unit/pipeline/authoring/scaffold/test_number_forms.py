"""Tests for columns of formatted numbers, which `init` recognizes and ExampleGen parses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.authoring.config import load
from pipeline.authoring.scaffold import draft
from tests.support.runs.ingest_runs import all_rows, bad_rows, data, ingest, ingest_error

ROWS = 400


def write_table(folder: Path) -> tuple[Path, pd.DataFrame]:
    """Write a table with formatted numbers, and return its path and the numbers."""
    chance = np.random.default_rng(5)
    amount, share = chance.integers(1, 3_000_000, ROWS), chance.integers(0, 100, ROWS)
    numbers = pd.DataFrame(
        {"big": amount, "rate": share / 100, "price": amount, "balance": -amount, "ratio": share / 8}
    )
    texts = pd.DataFrame(
        {
            "big": [f"{value:,}" for value in amount],
            "rate": [f"{percent} %" for percent in share],
            "price": [f"$ {value:,}" for value in amount],
            "balance": [f"({value:,})" for value in amount],
            "ratio": [f"{eighths / 8:.3f}".replace(".", ",") + "1" for eighths in share],
            "size": chance.normal(size=ROWS),
            "weight": chance.normal(size=ROWS),
            "y": chance.integers(0, 2, ROWS),
        }
    )
    numbers["ratio"] += 0.0001
    texts.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv", numbers


def test_init_and_ingest_read_the_same_numbers(tmp_path: Path) -> None:
    path, numbers = write_table(tmp_path)
    drafted = draft([str(path)], "y")
    forms = ["thousands", "percent", "currency", "accounting", "decimal_comma"]
    (tmp_path / "drafted.yaml").write_text(drafted.config("schema.pbtxt"))
    config = load(str(tmp_path / "drafted.yaml")).config.data
    assert config.csv.formats == dict(zip(numbers.columns, forms, strict=True))
    rows = all_rows(ingest(data(path, csv=config.csv.model_dump()), tmp_path / "out"))
    for name, expected in numbers.items():
        np.testing.assert_allclose(drafted.table.columns[name], expected, rtol=1e-6, atol=1e-9)
        received = sorted(dict(row)[name] for row in rows)
        np.testing.assert_allclose(received, sorted(expected), rtol=1e-6, atol=1e-9)


def test_row_with_an_invalid_number_is_bad(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("price,y\n" + "".join(f"${row},{row % 2}\n" for row in range(50)) + "free,1\n")
    config = data(tmp_path / "in.csv", csv={"formats": {"price": "currency"}}, bad_rows={"max_fraction": 0.1})
    [row] = bad_rows(ingest(config, tmp_path / "out"))
    assert row["reason"] == "expected a float, received 'free'"


def test_unknown_column_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("price,y\n$5,1\n")
    error = ingest_error(data(tmp_path / "in.csv", csv={"formats": {"prize": "currency"}}), tmp_path / "out")
    assert "data.csv.formats: there is no column 'prize'" in str(error)
