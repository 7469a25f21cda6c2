"""TFX's and this project's executors, in whole runs: `runtime.vectorised: false`, and examples in TFRecords."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.command import Runs

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines, pytest.mark.slow, pytest.mark.xdist_group("small")]


@pytest.mark.parametrize(
    ("setting", "suffix"),
    [
        # Statistics, transform graph and metrics are computed by TFX's executors.
        ("runtime.vectorised=false", ".gz"),
        # All nodes use this project's executors, on files that a stock or custom component can read.
        ("data.examples_format=tfrecord", ".gz"),
        # One TFX executor among this project's executors; for the Trainer, see test_own_code.
        ("runtime.vectorised=[Transform, Evaluator]", ".gz"),
        ("runtime.vectorised=[StatisticsGen, Evaluator]", ".gz"),
        ("runtime.vectorised=[StatisticsGen, Transform]", ".parquet"),
    ],
)
def test_run_with_stock_executors_or_files_has_the_same_results(small: Runs, setting: str, suffix: str):
    again, first = small.again("--set", setting, "--no-cache"), small.first.result
    assert (again.exit_code, again.result["state"]) == (0, "done"), again.result["error"]
    assert {"StatisticsGen", "Transform", "Trainer", "Evaluator"} <= again.nodes("done")
    for key in ("rows", "rows_excluded", "column_types", "rows_evaluated"):
        assert again.result[key] == first[key]
    assert again.result["metrics"] == pytest.approx(first["metrics"], abs=1e-3)
    by_slice = {str(entry["slice"]): entry for entry in first["slices"]}
    assert {str(entry["slice"]) for entry in again.result["slices"]} == set(by_slice)
    for entry in again.result["slices"]:
        expected = by_slice[str(entry["slice"])]
        assert entry["rows"] == expected["rows"]
        assert entry["metrics"] == pytest.approx(expected["metrics"], abs=1e-3)
    transformed = Path(again.result["model"]).parents[2] / "Transform" / "transformed_examples"
    newest = max(transformed.iterdir(), key=lambda folder: int(folder.name))
    assert {file.suffix for file in newest.rglob("*-of-*")} == {suffix}
