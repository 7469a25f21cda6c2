"""Predictions of a pushed version for other rows: by `runner.py predict`, and by the node of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import csv, parquet

from tests.support.data import people
from tests.support.fakes import fake_bigquery, fake_gcs
from tests.support.runs.command import Ended, Runs, command

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return people.write_new(tmp_path_factory.mktemp("new") / "people.csv")


def predict(runs: Runs, output: Path | str, *arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    models = ("--models", str(runs.output / "pushed"))
    command_line = ("predict", *runs.config, *models, "--into", str(output), *arguments, "--json")
    return command(*command_line, environment=environment)


def answers(model: str, rows: Path) -> np.ndarray:
    """Return what the model's signature for tf.Examples predicts, row by row, without the code of batch prediction."""
    signature = tf.saved_model.load(model).signatures["serving_default"]
    table = csv.read_csv(
        rows, parse_options=csv.ParseOptions(delimiter=";"), convert_options=csv.ConvertOptions(null_values=["NA", ""])
    )
    examples = []
    for row in table.to_pylist():
        example = tf.train.Example()
        if row["age"] is not None:
            example.features.feature["age"].float_list.value.append(row["age"])
        example.features.feature["hours"].int64_list.value.append(row["hours"])
        if row["city"]:
            example.features.feature["city"].bytes_list.value.append(row["city"].encode())
        examples.append(example.SerializeToString())
    return signature(examples=tf.constant(examples))["probability"].numpy()[:, 0]


def test_predictions_are_those_of_the_served_signature(small: Runs, rows: Path, tmp_path: Path):
    pushed = small.first.result["pushed"]
    # Do not use the stable version, because other tests push into the same folder.
    model = f"people@{Path(pushed).name}"
    ended = predict(small, tmp_path / "new" / "out", "--model", model, "--data", str(rows), "--columns", "id")
    assert ended.exit_code == 0, ended.err
    assert {name: ended.result[name] for name in ("rows", "predicted", "quarantined")} == {
        "rows": 300,
        "predicted": 300,
        "quarantined": 0,
    }
    assert ended.result["model"]["version"] == int(Path(pushed).name)
    table = parquet.read_table(sorted((tmp_path / "new" / "out").glob("*.parquet")))
    assert table.column("id").to_pylist() == [f"{at:04}" for at in range(300)]
    predicted = np.asarray(table.column("probability"))
    # Float32 rounding: how a product is summed up depends on the size of the batch.
    np.testing.assert_allclose(predicted, answers(pushed, rows), rtol=1e-5, atol=1e-7)
    assert np.ptp(predicted) > 0.5


@pytest.mark.parametrize("location", [None, "gs://bucket/tmp"])
def test_predictions_are_a_new_table(small: Runs, rows: Path, tmp_path: Path, location: str | None):
    pushed = small.first.result["pushed"]
    warehouse = fake_bigquery.Warehouse()
    arguments = ["--model", pushed, "--data", str(rows), "--columns", "id", "--format", "bigquery"]
    arguments += [] if location is None else ["--temp-location", location]
    with (
        fake_gcs.serve(warehouse.bucket, tmp_path) as of_bucket,
        fake_bigquery.serve(warehouse, tmp_path) as of_warehouse,
    ):
        environment = {**of_bucket, **of_warehouse}
        first = predict(small, "mine.rides.income", *arguments, environment=environment)
        second = predict(small, "mine:rides.income", *arguments, environment=environment)
    assert first.exit_code == 0, first.err
    [job] = warehouse.jobs
    assert (first.result["predicted"], first.result["job"]) == (300, job["jobReference"]["jobId"])
    assert ("sourceUris" in job["configuration"]["load"]) is (location is not None)
    table = warehouse.tables["rides.income"]
    assert {field.name: str(field.type) for field in table.rows.schema} == {"id": "string", "probability": "float"}
    assert table.rows.column("id").to_pylist() == [f"{at:04}" for at in range(300)]
    np.testing.assert_allclose(np.asarray(table.rows["probability"]), answers(pushed, rows), rtol=1e-5, atol=1e-7)
    description = json.loads(table.properties["description"])
    assert description["model"]["version"] == int(Path(pushed).name)
    assert (description["rows"], description["data"]) == (300, [str(rows)])
    assert table.properties["labels"]["model_digest"] == description["model"]["digest"][:12]
    # The temporary files are removed.
    assert not warehouse.bucket.files()
    assert second.exit_code == 2
    assert "expected a new table, received mine.rides.income, which exists" in second.err


def test_forked_workers_predict_the_same_as_a_folder_in_csv(small: Runs, rows: Path, tmp_path: Path):
    pushed = small.first.result["pushed"]
    direct = predict(small, tmp_path / "a", "--model", pushed, "--data", str(rows), "--format", "csv")
    workers = ("--set", "runtime.direct={mode: multi_processing, workers: 2}")
    forked = predict(small, tmp_path / "b", "--model", pushed, "--data", str(rows), "--format", "csv", *workers)
    assert (direct.exit_code, forked.exit_code) == (0, 0), direct.err + forked.err
    [first_file], [second_file] = (list((tmp_path / name).glob("*.csv")) for name in "ab")
    assert first_file.read_bytes() == second_file.read_bytes()
    assert len(first_file.read_text().splitlines()) == 301


def test_what_is_refused_leaves_nothing(small: Runs, rows: Path, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for output, arguments, message in (
        ("full", ("--data", str(rows)), "expected a new folder"),
        (
            "out",
            ("--data", str(rows), "--columns", "idd"),
            "expected the column 'idd', received none; did you mean 'id'",
        ),
        ("out", ("--data", str(rows), "--model", "taxi"), "--model: expected people"),
        ("out", ("--data", str(rows), "--model", "people@canary"), "expected a version, stable or canary"),
        ("out", ("--data", str(rows), "--model", "people@7"), "has no version 7"),
        ("out", ("--data", str(tmp_path / "none.csv")), f"--data: {tmp_path / 'none.csv'} does not exist"),
    ):
        ended = predict(small, tmp_path / output, *arguments)
        assert ended.exit_code == 2, ended.out
        assert message in ended.err
        assert {path.name for path in tmp_path.iterdir()} == {"full"}


# This test makes further runs in the folder that test_own_code uses.
@pytest.mark.xdist_group("own")
def test_node_predicts_with_the_version_that_the_run_has_pushed(built: Runs):
    first, rows = built.first, built.output.parents[1] / "new.csv"
    assert first.exit_code == 0, first.err
    assert first.states["Predictor"] == "done"
    predictions = built.output / "artifacts" / "Predictor" / "predictions"
    folder = min(predictions.iterdir(), key=lambda path: int(path.name))
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert (manifest["predicted"], manifest["model"]["version"]) == (300, int(Path(first.result["pushed"]).name))
    [file] = folder.glob("*.tfrecord.gz")
    records = [
        tf.train.Example.FromString(record).features.feature
        for record in tf.data.TFRecordDataset(str(file), "GZIP").as_numpy_iterator()
    ]
    assert [record["id"].bytes_list.value[0].decode() for record in records] == [f"{at:04}" for at in range(300)]
    predicted = [record["probability"].float_list.value[0] for record in records]
    np.testing.assert_allclose(predicted, answers(first.result["pushed"], rows), rtol=1e-5, atol=1e-7)

    # Neither the model nor the rows have changed.
    assert built.again().states["Predictor"] == "cached"
    people.write(rows, [{"id": "1", **people.rows(1)[0]}])
    changed = built.again()
    assert (changed.states["Pusher"], changed.states["Predictor"]) == ("cached", "done")

    refused = built.again("--set", "evaluation.thresholds={auc: {min: 0.9999}}")
    assert refused.exit_code == 3
    assert refused.result["pushed"] is None
    newest = max(predictions.iterdir(), key=lambda path: int(path.name))
    assert not list(newest.iterdir())
