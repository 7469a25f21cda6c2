"""The data gate decides on readable inputs; unreadable inputs are a failure of the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import ExampleAnomalies, ExampleStatistics, JsonValue

from components.base.errors import GateError, MachineError
from components.data import image_statistics
from components.data.near_duplicates import NearDuplicates, Pair
from components.data_gate.config import ValidationConfig
from components.data_gate.executor import Executor
from components.data_gate.plan import GatePlan

ROWS = 3


def run(folder: Path, min_rows: int, near_duplicates: float | None = None) -> JsonValue:
    """Run the gate on the artifacts in a folder; return the report."""
    statistics, anomalies, report = ExampleStatistics(), ExampleAnomalies(), JsonValue()
    statistics.uri, anomalies.uri = str(folder / "statistics"), str(folder / "anomalies")
    report.uri = str(folder / "report")
    for artifact in (statistics, anomalies):
        artifact.split_names = artifact_utils.encode_split_names(["eval"])
    validation = ValidationConfig(min_rows=min_rows, near_duplicates=near_duplicates)
    plan = GatePlan(validation=validation, labels=(), classes=False, schema_path=None)
    inputs: dict[str, Any] = {"statistics": [statistics], "anomalies": [anomalies]}
    Executor().Do(inputs, {"report": [report]}, {"plan": plan.model_dump_json()})
    return report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with statistics of three rows, and without anomalies."""
    for kind in ("statistics", "anomalies"):
        (tmp_path / kind / "Split-eval").mkdir(parents=True)
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    statistics.datasets.add(num_examples=ROWS)
    (tmp_path / "statistics/Split-eval/FeatureStats.pb").write_bytes(statistics.SerializeToString())
    no_anomalies = anomalies_pb2.Anomalies()
    no_anomalies.baseline.feature.add(name="age")
    (tmp_path / "anomalies/Split-eval/SchemaDiff.pb").write_bytes(no_anomalies.SerializeToString())
    return tmp_path


def test_run_stops_only_if_there_is_a_finding(folder: Path) -> None:
    assert run(folder, ROWS).value == {"action": "stop", "findings": []}
    with pytest.raises(GateError, match="expected at least 4 rows, received 3"):
        run(folder, ROWS + 1)


@pytest.mark.parametrize("min_rows", [ROWS, ROWS + 1])
def test_damaged_input_is_a_failure_with_and_without_findings(folder: Path, min_rows: int) -> None:
    file = folder / "anomalies/Split-eval/SchemaDiff.pb"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DecodeError):
        run(folder, min_rows)
    assert not (folder / "report").exists()


@pytest.mark.parametrize("file", ["anomalies/Split-eval/SchemaDiff.pb", "statistics/Split-eval/FeatureStats.pb"])
def test_empty_input_file_is_a_failure(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"")
    with pytest.raises(MachineError, match=r"\.pb: expected a message, received an empty file"):
        run(folder, ROWS)


def test_missing_input_is_a_failure(folder: Path) -> None:
    (folder / "statistics/Split-eval/FeatureStats.pb").unlink()
    with pytest.raises(tf.errors.NotFoundError, match=r"FeatureStats\.pb"):
        run(folder, ROWS + 1)


def test_near_duplicates_stop_the_run_only_above_the_bound(folder: Path) -> None:
    near_duplicates = [NearDuplicates("image", "eval", 4, 1, (Pair(1.0, "b.jpg", "a.jpg"),))]
    image_statistics.write_near_duplicates(near_duplicates, str(folder / "statistics"))
    assert image_statistics.near_duplicates(str(folder / "statistics")) == near_duplicates
    assert run(folder, ROWS).value == {"action": "stop", "findings": []}
    with pytest.raises(
        GateError, match=r"the data gate stops the run: 1 finding in the data[\s\S]*1 of 4, such as b.jpg"
    ):
        run(folder, ROWS, near_duplicates=0.2)
