"""Tests of batch prediction from files to files, with Beam's in-process runner."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image
from pyarrow import parquet
from tfx.utils import proto_utils

from components.base.errors import InputError
from components.data import example_encoder
from components.ingest import csv_reader, spilled_join
from components.ingest.component import input_of
from components.ingest.config import BadRowsConfig, Format, IngestConfig
from components.ingest.join_config import JoinConfig
from components.ingest.text_config import CsvConfig
from components.predictor import batch_prediction, model_interface
from components.predictor.batch_prediction import Predictions
from components.predictor.driver import Driver
from components.predictor.plan import PredictionPlan
from tests.support.data import batch_models
from tests.support.data.tolerances import rounding

OPTIONS = [
    "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner",
    "--direct_running_mode=in_memory",
]


def predict(
    model: str, folder: Path, *files: Path, columns: tuple[str, ...] = (), format_: Format = "csv", **ingest: Any
) -> Predictions:
    plan = PredictionPlan(ingest=IngestConfig(format=format_, **ingest), columns=columns)
    folder.mkdir()
    return batch_prediction.predict(
        [str(file) for file in files],
        plan,
        model_interface.read(model),
        {"name": "test"},
        str(folder),
        lambda: beam.Pipeline(options=PipelineOptions(OPTIONS)),
    )


def table(folder: Path) -> pa.Table:
    return parquet.read_table(folder)


@pytest.fixture(scope="module")
def raw_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return batch_models.own(tmp_path_factory.mktemp("own"))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_values_have_the_types_of_the_model_and_keys_are_passed_through(raw_model: str, tmp_path: Path) -> None:
    # Inferred from the values, zip and hours would be columns of integers.
    data = write(tmp_path / "a.csv", "id,zip,hours,label", "0001,007,10,x", "02,7,,y", ",8,20,z")
    written = predict(raw_model, tmp_path / "out", data, columns=("id",))
    assert table(tmp_path / "out").to_pydict() == {"id": ["0001", "02", None], "score": [2.0, -1.0, 2.0]}
    assert (written.rows, written.predicted, written.quarantined) == (3, 3, 0)
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["model"] == {"name": "test", "signature": "raw"}
    assert manifest["data"] == [str(data)]
    assert manifest["columns"] == {"id": "string", "score": "float"}
    [(name, file)] = manifest["files"].items()
    content = (tmp_path / "out" / name).read_bytes()
    assert file == {"rows": 3, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {name, "_manifest.json"}


def test_rows_keep_their_order_over_files_and_ranges(
    raw_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 1 << 12)
    lines = [f"{number},7,{number}" for number in range(3_000)]
    first = write(tmp_path / "a.csv", "id,zip,hours", *lines[:2_500])
    second = write(tmp_path / "b.csv", "id,zip,hours", *lines[2_500:])
    written = predict(raw_model, tmp_path / "out", first, second, columns=("id",))
    assert len(written.files) > 4
    rows = table(tmp_path / "out")
    assert rows.column("id").to_pylist() == [str(number) for number in range(3_000)]
    expected = np.arange(3_000, dtype=np.float32) / 10
    rounding(4).assert_close(np.asarray(rows.column("score")), expected)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_rows_are_joined_with_side_tables(
    raw_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The model reads a column of the side table, and another one is copied; a join does not change the order."""
    monkeypatch.setattr(spilled_join, "find_limit", lambda: limit)
    data = write(tmp_path / "a.csv", "id,zip", "1,07", "2,7", "3,08", "4,")
    side = write(tmp_path / "side.csv", "zip,hours,town", "08,20,B", "07,10,A")
    join = (JoinConfig(path=str(side), on="zip"),)
    written = predict(raw_model, tmp_path / "out", data, columns=("id", "town"), join=join)
    rows = table(tmp_path / "out").to_pydict()
    assert (written.predicted, rows["id"], rows["town"]) == (4, ["1", "2", "3", "4"], ["A", None, "B", None])
    assert rows["score"] == [1.0, -1.0, 2.0, -1.0]
    assert written.joins == [{"path": [str(side)], "rows": 4, "matched": 2}]


def test_a_changed_side_table_leads_to_new_predictions(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "id,zip", "1,07")
    side = write(tmp_path / "side.csv", "zip,hours", "07,10")
    plan = PredictionPlan(ingest=IngestConfig(format="csv", join=(JoinConfig(path=str(side), on="zip"),)))
    input_config = proto_utils.proto_to_json(input_of({"all-0": "a.csv"}))
    fields = {"input_base": str(tmp_path), "input_config": input_config, "plan": plan.model_dump_json()}

    def resolve_fingerprint() -> str:
        return str(Driver(None).resolve_exec_properties(dict(fields), None, None)["input_fingerprint"])

    before = resolve_fingerprint()
    assert before == resolve_fingerprint()
    write(side, "zip,hours", "07,11")
    assert before != resolve_fingerprint()


def test_bad_rows_are_quarantined(raw_model: str, tmp_path: Path) -> None:
    data = write(tmp_path / "a.csv", "id,zip,hours", "1,7,10", "2,7,many", "3,7,10,4", "4,7,20")
    written = predict(raw_model, tmp_path / "out", data, columns=("id",), bad_rows=BadRowsConfig(max_fraction=0.5))
    assert (written.rows, written.predicted, written.quarantined) == (4, 2, 2)
    assert table(tmp_path / "out").column("id").to_pylist() == ["1", "4"]
    with gzip.open(tmp_path / "out" / "_quarantine" / "bad_rows.jsonl.gz", "rt") as file:
        bad = [json.loads(line) for line in file]
    assert [(row["row"], row.get("column")) for row in bad] == [(3, "hours"), (4, None)]
    assert bad[0]["content"] == {"id": "2", "zip": "7", "hours": "many"}


def test_too_many_bad_rows_are_an_error_without_a_manifest(raw_model: str, tmp_path: Path) -> None:
    data = write(tmp_path / "a.csv", "zip,hours", "7,10", "7,many")
    with pytest.raises(InputError, match="row 3: column hours: expected a float, received 'many'"):
        predict(raw_model, tmp_path / "out", data)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_typed_values_are_cast_and_columns_keep_their_type(raw_model: str, tmp_path: Path) -> None:
    data = tmp_path / "a.parquet"
    moments = pa.array([0, 86_400_000, None], pa.timestamp("ms"))
    rows = {"at": moments, "zip": pa.array(["007", "x", None]), "hours": pa.array([10, 20, None], pa.int16())}
    parquet.write_table(pa.table(rows), data)
    predict(raw_model, tmp_path / "out", data, columns=("at", "hours"), format_="parquet")
    assert table(tmp_path / "out").schema.field("hours").type == pa.int16()
    assert table(tmp_path / "out").to_pydict() == {
        "at": moments.to_pylist(),
        "hours": [10, 20, None],
        "score": [2.0, 2.0, -1.0],
    }


def test_value_that_the_cast_would_change_is_bad(tmp_path: Path) -> None:
    model = batch_models.write_identity_model(tmp_path / "model", count=tf.TensorSpec([None], tf.int64))
    data = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"count": pa.array([1.0, 2.5, 3.0])}), data)
    written = predict(model, tmp_path / "out", data, format_="parquet", bad_rows=BadRowsConfig(max_fraction=1))
    assert written.quarantined == 3 - written.predicted
    assert 2 not in table(tmp_path / "out").column("count_out").to_pylist()


def test_models_of_examples_predict_from_tfrecords_and_csv(tmp_path: Path) -> None:
    model = batch_models.write_doubling_model(tmp_path / "model")
    rows = pa.RecordBatch.from_pydict({"number": pa.array([[3], [4]], pa.large_list(pa.int64()))})
    data = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(data)) as writer:
        for record in example_encoder.encode(rows).to_pylist():
            writer.write(record)
    predict(model, tmp_path / "out", data, format_="tfrecord")
    assert table(tmp_path / "out").to_pydict() == {"doubled": [6, 8]}
    # The types of CSV columns are inferred as in ExampleGen.
    predict(
        model, tmp_path / "text", write(tmp_path / "a.csv", "number;name", "3;a", "4;b"), csv=CsvConfig(delimiter=";")
    )
    assert table(tmp_path / "text").to_pydict() == {"doubled": [6, 8]}


def test_images_in_folders_are_sent_encoded(tmp_path: Path) -> None:
    @tf.function(input_signature=[{"image": tf.TensorSpec([None], tf.string, "image")}], autograph=False)
    def sizes(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"bytes": tf.strings.length(columns["image"])}

    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), {"serving_default": sizes})
    files = []
    for name in ("cat/1.png", "dog/2.png"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True)
        Image.new("L", (8, 8), len(files)).save(path)
        files.append(path)
    predict(str(tmp_path / "model"), tmp_path / "out", *files, columns=("path",), format_="images")
    expected = {"path": ["cat/1.png", "dog/2.png"], "bytes": [path.stat().st_size for path in files]}
    assert table(tmp_path / "out").to_pydict() == expected


def test_unsuitable_columns_are_named_in_the_error(raw_model: str, tmp_path: Path) -> None:
    data = write(tmp_path / "a.csv", "id,zipp,hours", "1,7,10")
    with pytest.raises(InputError, match="expected the column 'zip', received none; did you mean 'zipp'"):
        predict(raw_model, tmp_path / "out", data)
    data = write(tmp_path / "b.csv", "zip,score,hours", "1,7,10")
    with pytest.raises(InputError, match="the column 'score' has the name of a prediction"):
        predict(raw_model, tmp_path / "out2", data, columns=("score",))
    data = write(tmp_path / "c.csv", "zip,hours")
    with pytest.raises(InputError, match="has no rows"):
        predict(raw_model, tmp_path / "out3", data)
