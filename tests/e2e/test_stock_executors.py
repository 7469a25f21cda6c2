"""TFX's own executors and ours, in whole runs: `runtime.vectorised: false`, and examples in TFRecords."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Runs

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines, pytest.mark.xdist_group("small")]


_ALL = ("StatisticsGen", "Transform", "Evaluator")


@pytest.mark.parametrize(
    ("setting", "again_done"),
    [
        # Statistics, transform graph and metrics are computed by TFX's executors.
        ("runtime.vectorised=false", _ALL),
        # Each node is ours, on the files that a stock or custom component would read.
        pytest.param("data.examples_format=tfrecord", _ALL, marks=pytest.mark.slow),
        # One node of TFX's among ours; for the Trainer, see test_own_code.
        pytest.param("runtime.vectorised=[Transform, Evaluator]", _ALL, marks=pytest.mark.slow),
        pytest.param("runtime.vectorised=[StatisticsGen, Evaluator]", _ALL, marks=pytest.mark.slow),
        pytest.param("runtime.vectorised=[StatisticsGen, Transform]", ("Evaluator",), marks=pytest.mark.slow),
    ],
)
def test_run_with_stock_executors_or_files_has_the_same_results(small: Runs, setting: str, again_done: tuple[str, ...]):
    again, first = small.again("--set", setting), small.first.result
    assert (again.exit_code, again.result["state"]) == (0, "done"), again.result["error"]
    assert set(again_done) <= again.nodes("done")
    for key in ("rows", "rows_quarantined", "column_types", "rows_evaluated"):
        assert again.result[key] == first[key]
    assert again.result["metrics"] == pytest.approx(first["metrics"], abs=1e-3)
    by_slice = {str(each["slice"]): each for each in first["slices"]}
    assert {str(each["slice"]) for each in again.result["slices"]} == set(by_slice)
    for each in again.result["slices"]:
        expected = by_slice[str(each["slice"])]
        assert each["rows"] == expected["rows"]
        assert each["metrics"] == pytest.approx(expected["metrics"], abs=1e-3)
    transformed = Path(again.result["model"]).parents[2] / "Transform" / "transformed_examples"
    (newest,) = sorted(transformed.iterdir(), key=lambda folder: int(folder.name))[-1:]
    suffix = ".gz" if "Transform" in again_done else ".parquet"
    assert {file.suffix for file in newest.rglob("*-of-*")} == {suffix}
