"""Tests of loading Parquet files into a new BigQuery table, with the official client and a fake API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from components.base.errors import InputError
from components.predictor import output
from components.predictor.bigquery_table import NewTable, TableName, parse
from tests.support.fakes.fake_bigquery import Warehouse, serve

NAME = TableName("my-project", "rides", "tips")
DESCRIPTION: dict[str, Any] = {"model": {"name": "Taxi", "version": 17, "digest": "e7baa6ec" * 8}, "rows": 5}


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    warehouse = Warehouse()
    with serve(warehouse, tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield warehouse


def write_files(folder: Path, *batches: dict[str, pa.Array]) -> list[str]:
    files = []
    for number, batch in enumerate(batches):
        files.append(str(folder / f"predictions-{number}.parquet"))
        record = pa.RecordBatch.from_pydict(batch)
        writer = output.create(files[-1], "parquet", record.schema)
        writer.write(record)
        writer.close()
    return files


def rows(*numbers: int) -> dict[str, pa.Array]:
    pairs = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 2 * len(numbers), pa.float32()), 2)
    keys = pa.array([f"{number:03}" for number in numbers])
    return {"id": keys, "number": pa.array(numbers), "score": pa.array(numbers, pa.float32()), "pair": pairs}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my-project.rides.tips", NAME),
        ("my-project:rides.tips", NAME),
        ("example.com:my-project.rides.tips", TableName("example.com:my-project", "rides", "tips")),
        ("example.com:my-project:rides.tips", TableName("example.com:my-project", "rides", "tips")),
    ],
)
def test_table_name_includes_the_project(text: str, name: TableName) -> None:
    assert parse(text) == name


@pytest.mark.parametrize("text", ["rides.tips", "predictions", "out/p.d.t", "p.d.t$20261126", "p.d.t.u", "p:d:t", ""])
def test_invalid_table_names_are_rejected(text: str) -> None:
    with pytest.raises(InputError, match=r"--into: expected a table as PROJECT\.DATASET\.TABLE, received"):
        parse(text)


def test_files_are_loaded_by_one_job_into_one_table(warehouse: Warehouse, tmp_path: Path) -> None:
    files = write_files(tmp_path, rows(1, 2), rows(3), rows(4, 5))
    job = NewTable(NAME).load(files, DESCRIPTION)
    [sent] = warehouse.jobs
    assert sent["jobReference"] == {"projectId": "my-project", "jobId": job, "location": "EU"}
    labels = {"model_version": "17", "model_digest": "e7baa6ece7ba"}
    assert sent["configuration"]["labels"] == labels
    load = sent["configuration"]["load"]
    assert load["destinationTable"] == {"projectId": "my-project", "datasetId": "rides", "tableId": "tips"}
    assert load["parquetOptions"] == {"enableListInference": True}
    table = warehouse.tables["rides.tips"]
    assert table.properties["labels"] == labels
    assert json.loads(table.properties["description"]) == DESCRIPTION
    assert table.rows.column("id").to_pylist() == ["001", "002", "003", "004", "005"]
    assert {field.name: str(field.type) for field in table.rows.schema if field.name != "pair"} == {
        "id": "string",
        "number": "int64",
        "score": "float",
    }
    assert table.rows.column("pair").to_pylist() == [[0.5, 0.5]] * 5
    # BigQuery recognizes a list by these names of its levels.
    assert parquet.ParquetFile(files[0]).schema.column(3).path == "pair.list.element"


def test_files_in_a_bucket_are_loaded_from_the_bucket(warehouse: Warehouse, tmp_path: Path) -> None:
    for file in write_files(tmp_path, rows(1), rows(2)):
        warehouse.bucket.objects[f"tmp/{Path(file).name}"] = Path(file).read_bytes()
    urls = [f"gs://bucket/{name}" for name in warehouse.bucket.objects]
    NewTable(NAME).load(urls, {"model": {"folder": "other"}})
    [sent] = warehouse.jobs
    assert sent["configuration"]["load"]["sourceUris"] == urls
    assert sent["configuration"]["labels"] == {}
    assert warehouse.tables["rides.tips"].rows.column("number").to_pylist() == [1, 2]


def test_existing_table_is_rejected_before_and_during_loading(warehouse: Warehouse, tmp_path: Path) -> None:
    files = write_files(tmp_path, rows(1))
    early = NewTable(NAME)
    NewTable(NAME).load(files, DESCRIPTION)
    for act in (lambda: NewTable(NAME), lambda: early.load(files, DESCRIPTION)):
        with pytest.raises(InputError, match=r"expected a new table, received my-project\.rides\.tips, which"):
            act()
    assert warehouse.tables["rides.tips"].rows.num_rows == 1


def test_missing_dataset_is_an_error(warehouse: Warehouse) -> None:
    with pytest.raises(InputError, match=r"my-project\.other does not exist: .*Not found"):
        NewTable(TableName("my-project", "other", "tips"))


def test_rejected_rows_are_an_error_without_a_table(warehouse: Warehouse, tmp_path: Path) -> None:
    table = NewTable(NAME)
    warehouse.refuses = ("invalid", "Error while reading data")
    with pytest.raises(InputError, match=r"rides\.tips: the request was refused: .*Error while reading"):
        table.load(write_files(tmp_path, rows(1)), DESCRIPTION)
    assert not warehouse.tables
