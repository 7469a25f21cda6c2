"""Tests of reading request logs: both forms of requests, several versions, sampling, and truncated files."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from components.base.errors import InputError
from components.data import request_log
from tests.support.data.request_logs import raw, record, write


def test_columns_are_read_by_version_with_missing_values(tmp_path: Path) -> None:
    smallest = np.iinfo(np.int64).min
    file = write(
        tmp_path / "log",
        raw(1, [1.0, np.nan], ["a", ""], [7, smallest]),
        raw(2, [3.0], ["c"], [9]),
        raw(1, [4.0], ["d"], [8]),
        # Requests in a log of TensorFlow Serving do not contain the version.
        raw(0, [5.0], ["e"], [6], answered_by=2),
    )
    read = request_log.read([file], 100)
    assert {version: requests.rows for version, requests in read.items()} == {1: 3, 2: 2}
    assert {name: column.to_pylist() for name, column in read[1].columns.items()} == {
        "hours": [1.0, None, 4.0],
        "zip": [b"a", None, b"d"],
        "count": [7, None, 8],
    }
    np.testing.assert_array_equal(read[2].outputs["score"], [[3.0], [5.0]])


def test_examples_are_decoded_and_joined_with_columns(tmp_path: Path) -> None:
    examples = []
    for hours in ([2.5], []):
        example = tf.train.Example()
        example.features.feature["hours"].float_list.value.extend(hours)
        example.features.feature["id"].bytes_list.value.append(b"x")
        example.features.feature["zip"].bytes_list.value.append(b"y")
        examples.append(example.SerializeToString())
    file = write(
        tmp_path / "log",
        record(1, "serving_default", [0.1, 0.2], examples=np.array(examples, object)),
        raw(1, [1.0], ["a"], [7]),
        # The reader skips other records than predictions, and signatures of numbers other than `raw`.
        prediction_log_pb2.PredictionLog().SerializeToString(),
        record(1, "other", [0.3], x=np.array([1.0], np.float32)),
    )
    read = request_log.read([file], 100)[1]
    # Rows from a tf.Example do not have a count, so the value is missing in these rows only.
    assert {name: column.to_pylist() for name, column in read.columns.items()} == {
        "hours": [2.5, None, 1.0],
        "zip": [b"y", b"y", b"a"],
        "count": [None, None, 7],
        "id": [b"x", b"x", None],
    }
    assert read.outputs["score"].shape == (3, 1)


def test_column_that_becomes_private_is_read_as_text(tmp_path: Path) -> None:
    examples = []
    for values in ([7], [b"e4d909c290d0fb1c"], []):  # pragma: allowlist secret
        example = tf.train.Example()
        example.features.feature["hours"].float_list.value.append(1.5)
        feature = example.features.feature["user"]
        if values:
            (feature.int64_list if isinstance(values[0], int) else feature.bytes_list).value.extend(values)
        examples.append(example.SerializeToString())
    hashed = np.array([b"c290d0fb1c", b""], object)
    file = write(
        tmp_path / "log",
        record(1, "serving_default", [0.1, 0.2, 0.3], examples=np.array(examples, object)),
        raw(1, [1.0, 2.0], ["a", "b"], [7, 8], user=np.array([9, np.iinfo(np.int64).min])),
        raw(1, [1.0, 2.0], ["a", "b"], [7, 8], user=hashed),
    )
    columns = request_log.read([file], 100)[1].columns
    a_hash = b"e4d909c290d0fb1c"  # pragma: allowlist secret
    assert columns["user"].to_pylist() == [b"7", a_hash, None, b"9", None, b"c290d0fb1c", None]
    assert columns["hours"].to_pylist() == [1.5, 1.5, 1.5, 1.0, 2.0, 1.0, 2.0]


def test_request_without_any_column_is_read(tmp_path: Path) -> None:
    read = request_log.read([write(tmp_path / "log", record(1, "raw", [0.1, 0.2]))], 100)[1]
    assert (read.rows, read.compared, dict(read.columns)) == (2, 2, {})


def test_random_sample_of_many_records_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "log", *(raw(1, [float(number)], ["a"], [number]) for number in range(2_000)))
    read = request_log.read([file], 200)[1]
    numbers = read.columns["count"].to_pylist()
    assert (read.rows, len(numbers), len(set(numbers))) == (2_000, 200, 200)
    # The mean of 200 numbers drawn from 0..1999 without replacement has a standard deviation of 39.
    assert abs(np.mean(numbers) - 999.5) < 4 * 39


def test_truncated_file_is_read_up_to_its_last_complete_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(3):
            writer.write(raw(1, [float(number)], ["a"], [number]))
    path.write_bytes(path.read_bytes()[:-5])
    assert request_log.read([str(path)], 100)[1].columns["count"].to_pylist() == [0, 1]
    assert "the rest of the log is not read" in caplog.text


def test_files_are_sorted_by_time(tmp_path: Path) -> None:
    for number, name in enumerate(("requests-1700000000000000001-7.tfrecord.gz", "b.log", ".other")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_600_000_000 + number, 1_600_000_000 + number))
    log_files = request_log.files([str(tmp_path)])
    assert [(Path(file.path).name, round(file.time)) for file in log_files] == [
        ("b.log", 1_600_000_001),
        ("requests-1700000000000000001-7.tfrecord.gz", 1_700_000_000),
    ]
    assert len(request_log.files([str(tmp_path / "b*")])) == 1
    with pytest.raises(InputError, match="expected files of a request log, received none"):
        request_log.files([str(tmp_path / "none")])


def test_rare_version_is_sampled_separately(tmp_path: Path) -> None:
    many = (raw(1 if number % 20 else 2, [float(number)], ["a"], [number]) for number in range(400))
    read = request_log.read([write(tmp_path / "log", *many)], 50)
    assert {version: (requests.rows, requests.compared) for version, requests in read.items()} == {
        1: (380, 50),
        2: (20, 20),
    }


def test_unfinished_file_is_read_up_to_its_last_flush(tmp_path: Path) -> None:
    write(tmp_path / "requests-1700000000000000000-1.tfrecord.gz", raw(1, [1.0], ["a"], [7]))
    unfinished = tmp_path / ".requests-1700000060000000000-1.tfrecord.gz"
    options = tf.io.TFRecordOptions(compression_type="GZIP", flush_mode=zlib.Z_SYNC_FLUSH)
    with tf.io.TFRecordWriter(str(unfinished), options) as writer:
        for hour in range(300):
            writer.write(raw(2, [float(hour)], ["b"], [8]))
        writer.flush()
        files = request_log.files([str(tmp_path)])
        assert [file.time for file in files] == [1.7e9, 1.7e9 + 60]
        read = request_log.read([file.path for file in files], 1000)
    assert read[1].rows == 1
    assert read[2].rows == 300


def test_file_that_was_finished_after_listing_is_read(tmp_path: Path) -> None:
    name = "requests-1700000000000000000-1.tfrecord.gz"
    write(tmp_path / f".{name}", raw(1, [1.0], ["a"], [7]))
    [listed] = request_log.files([str(tmp_path)])
    (tmp_path / f".{name}").rename(tmp_path / name)
    assert request_log.read([listed.path], 10)[1].rows == 1


def test_history_is_read_as_its_first_event(tmp_path: Path) -> None:
    smallest = np.iinfo(np.int64).min
    file = write(
        tmp_path / "log",
        raw(1, [1.0, 2.0], ["a", "b"], [7, 8], past=np.array([[5, 6], [smallest, smallest]])),
        raw(1, [3.0], ["c"], [9], past=np.zeros([1, 0], np.int64)),
    )
    assert request_log.read([file], 10)[1].columns["past"].to_pylist() == [5, None, None]
