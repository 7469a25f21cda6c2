"""Settings of `target_mean`, `geo_distance` and cyclical dates that cannot be computed are reported by `load`."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from components.features.geo_ops import GeoDistance
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns

CONFIG = """\
data:
  path: trips.csv
  {label}
features:
  columns:
    fare: {operation}
evaluation:
  thresholds:
    auc: {{min: 0.9}}
"""


def write(folder: Path, operation: str, label: str = "label: tips > 9") -> str:
    path = folder / "trips.yaml"
    path.write_text(CONFIG.format(operation=operation, label=label))
    return str(path)


def list_errors(path: str, *assignments: str) -> str:
    with pytest.raises(InputError) as refusal:
        load(path, assignments)
    return " | ".join(refusal.value.details or (refusal.value.headline,))


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("{date_parts: {parts: [hour, year], encode: cyclical}}", "expected parts that repeat, received year"),
        ("{date_parts: {parts: [hour], encode: cyclical, embedding: 3}}", "sin and cos have no embedding"),
        (
            "{geo_distance: {longitude: miles, to: [91, 0]}}",
            "expected a latitude within [-90, 90] and a longitude within [-180, 180], received 91, 0",
        ),
        ("{target_mean: {folds: 1}}", "fare.target_mean.folds: expected"),
    ],
)
def test_options_that_do_not_fit_are_reported(tmp_path: Path, operation: str, message: str) -> None:
    assert message in list_errors(write(tmp_path, operation))


@pytest.mark.parametrize("operation", ["target_mean", "count"])
def test_table_of_values_needs_the_columnar_executor(tmp_path: Path, operation: str) -> None:
    errors = list_errors(write(tmp_path, operation), "runtime.vectorised=[Evaluator]")
    assert f"TFX's executor of Transform does not compute {operation}; remove it" in errors


def test_target_mean_of_several_labels_is_reported(tmp_path: Path) -> None:
    errors = list_errors(write(tmp_path, "target_mean", "labels: {tipped: tips > 9, long: hours > 9}"))
    assert "target_mean expects one label, of the task binary, multiclass or regression" in errors


def test_columns_of_a_distance_are_checked(tmp_path: Path) -> None:
    config = load(write(tmp_path, "{geo_distance: {longitude: east, to: [north, miles]}}")).config
    (feature,) = config.features.declared
    assert isinstance(feature.op, GeoDistance)
    assert feature.columns == ("fare", "east", "north", "miles")
    problems = check_columns(config, ["fare", "tips", "east", "miles"])
    (problem,) = problems
    assert problem.message.startswith("the data has no column 'north'")
    fixed = load(write(tmp_path, "{geo_distance: {longitude: east, to: [48, 11.5]}}")).config
    assert fixed.features.declared[0].columns == ("fare", "east")
