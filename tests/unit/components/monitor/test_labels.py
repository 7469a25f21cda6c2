"""Tests of reading labels by key from files of several formats, and from a bucket."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from components.base.errors import InputError
from components.data import request_log
from components.data.private_columns import PrivateColumns
from components.ingest.column_types import Kind
from components.ingest.config import DataConfig
from components.monitor import labels
from tests.support.data.request_logs import raw, write
from tests.support.fakes import monitored_bucket
from tests.support.fakes.fake_gcs import Bucket, serve
from tests.support.runs.command import ROOT, SECONDS
from tests.support.servers.forked_command import ForkedCommand

KINDS = {"tips": Kind.FLOAT, "paid": Kind.BYTES, "none": Kind.INT}


def data(path: object, **options: Any) -> DataConfig:
    return DataConfig(label="tips > 1", path=(str(path),), **options)


def read(path: object, *keys: object, **options: Any) -> dict[object, dict[str, Any]]:
    encoded_keys = labels.encode_keys(pa.array(keys))
    label_rows = labels.read(data(path, **options), "id", encoded_keys, KINDS)
    rows = pa.table({"id": label_rows.keys, **label_rows.columns}).to_pylist()
    return {row.pop("id"): row for row in reversed(rows)}


def test_last_row_of_a_key_counts_in_every_format(tmp_path: Path) -> None:
    first = pa.table({"id": [7, 8, 9], "tips": [1.5, None, 3.0], "paid": ["a", "b", None]})
    second = pa.table({"id": [8], "tips": [2.0], "paid": ["c"]})
    expected = {
        b"7": {"tips": 1.5, "paid": b"a"},
        b"8": {"tips": 2.0, "paid": b"c"},
    }
    for folder, write_file in (("csv", csv.write_csv), ("parquet", parquet.write_table)):
        (tmp_path / folder).mkdir()
        for number, table in enumerate((first, second)):
            write_file(table, tmp_path / folder / f"{number}.{folder}")
        assert read(tmp_path / folder, 7, 8) == expected
        assert read(f"{tmp_path / folder}/*", b"8", b"7", None, b"x") == expected
    assert read(tmp_path / "csv" / "0.csv", 9) == {b"9": {"tips": 3.0, "paid": None}}


def test_keys_of_labels_are_hashed_like_keys_of_requests(tmp_path: Path) -> None:
    csv.write_csv(pa.table({"id": [7, 8], "tips": [1.5, 2.5]}), tmp_path / "1.csv")
    private = PrivateColumns({"id": "hash"}, b"a secret of 23 bytes...")
    requested = pa.array(private.mask_arrays({"id": np.array([8, 9])})["id"], pa.large_binary())
    hash_keys = functools.partial(private.hash_column, "id")
    rows = labels.read(data(tmp_path / "1.csv"), "id", requested, KINDS, hash_keys)
    assert rows.keys.to_pylist() == requested.to_pylist()[:1]
    assert rows.columns["tips"].to_pylist() == [2.5]


def test_invalid_rows_are_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "1.csv").write_text("id,tips\n1,2.5\n2,many\n3,4\n4\n")
    assert read(tmp_path / "1.csv", 1, 2, 3, 4) == {b"1": {"tips": 2.5}, b"3": {"tips": 4.0}}
    assert "skipped 2 rows that cannot be read or contain a value of another type" in caplog.text


def test_missing_files_are_accepted_and_a_missing_key_column_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("none.csv", "none/*.csv", "empty", "{SPAN}/l.csv"):
        assert read(tmp_path / path, 1) == {}
    (tmp_path / "1.csv").write_text("idd,tips\n1,2.5\n")
    with pytest.raises(InputError, match=r"monitor.key: expected a column of .*1.csv, received 'id'; did you mean"):
        read(tmp_path / "1.csv", 1)


@pytest.mark.extended
def test_requests_and_labels_can_be_read_from_a_bucket(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "labels"
    log.mkdir()
    folder.mkdir()
    newer = write(log / "requests-1700000100000000000-7.tfrecord.gz", raw(1, [1.0], ["a"], [7], id=[b"x"]))
    older = write(log / "requests-1700000000000000000-7.tfrecord.gz", raw(1, [2.0], ["b"], [8], id=[b"y"]))
    unfinished = log / ".requests-1700000200000000000-7.tfrecord.gz"
    shutil.copy(newer, unfinished)
    (folder / "1.csv").write_text("id,tips\ny,2.5\nx,4\nz,5\n")
    bucket = Bucket()
    for path in (*log.iterdir(), *folder.iterdir()):
        bucket.objects[f"served/{path.relative_to(tmp_path)}"] = path.read_bytes()
    with serve(bucket, tmp_path) as environment:
        arguments = ["gs://bucket/served/log", "gs://bucket/served/labels"]
        code, out, err = ForkedCommand(monitored_bucket.main, arguments, ROOT, {**os.environ, **environment}).wait(
            SECONDS
        )
    assert code == 0, err
    assert json.loads(out) == {"keys": ["y", "x", "x"], "tips": [4.0, 2.5]}
    assert [Path(file.path).name for file in request_log.files([f"file://{log}"])] == [
        Path(older).name,
        Path(newer).name,
        unfinished.name,
    ]
