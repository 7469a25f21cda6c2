"""Tests for `export-examples`, which writes examples that TensorFlow can read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf

from components.data.example_encoder import encode
from components.data.examples import ParquetWriter, to_lists
from pipeline.cli.main import main
from tests.support.runs.store_writer import Writer

ROWS = pa.RecordBatch.from_pydict({"a": pa.array([1, None, 3]), "b": pa.array([[b"x"], [], [b"y", b"z"]])})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a run that has written examples as Parquet files and a model."""
    uri = tmp_path / "artifacts/examples"
    for split in ("train", "eval"):
        (uri / f"Split-{split}").mkdir(parents=True)
        path = str(uri / f"Split-{split}/data_parquet-00000-of-00001.parquet")
        parquet = ParquetWriter(path, to_lists(ROWS).schema)
        parquet.write(to_lists(ROWS))
        parquet.close()
    writer = Writer(tmp_path / "metadata.db")
    writer.run("r1", "{}")
    properties = {"split_names": '["train", "eval"]', "payload_format": "FORMAT_PARQUET"}
    writer.execution("r1", "ExampleGen", "COMPLETE", [writer.artifact("Examples", str(uri), **properties)])
    writer.execution("r1", "Trainer", "COMPLETE", [writer.artifact("Model", str(tmp_path / "model"))])
    return tmp_path / "metadata.db"


def export(store: Path, reference: str, folder: object) -> int:
    return main(["store", "export-examples", reference, str(folder), "--store", str(store)])


@pytest.mark.parametrize("reference", ["latest", "r1", "1", "artifact:1", "FOLDER"])
def test_tensorflow_reads_exported_examples(
    store: Path, tmp_path: Path, reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = str(tmp_path / "artifacts/examples") if reference == "FOLDER" else reference
    folder = tmp_path / "exported"
    assert export(store, reference, folder) == 0
    assert capsys.readouterr().out == f"{folder}: train, eval of artifact 1\n"
    for split in ("train", "eval"):
        (file,) = (folder / f"Split-{split}").iterdir()
        assert file.name == "data_tfrecord-00000-of-00001.gz"
        assert list(tf.data.TFRecordDataset(str(file), "GZIP").as_numpy_iterator()) == encode(ROWS).to_pylist()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("2", "2: expected an artifact of type Examples, received Model"),
        ("77", "77: expected an artifact of type Examples, received none"),
        ("r7", "there is no run 'r7'"),
    ],
)
def test_reference_without_examples_is_rejected(
    store: Path, tmp_path: Path, reference: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(store, reference, tmp_path / "exported") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()


def test_existing_folder_is_not_overwritten(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, received in ((tmp_path / "artifacts", "one that exists"), ("gs://bucket/examples", "a URL")):
        assert export(store, "latest", folder) == 2
        assert f"{folder}: expected a new folder on this machine, received {received}" in capsys.readouterr().err
