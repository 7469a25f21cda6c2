"""Tests of the request log: files are complete, private and bounded, and a failing disk does not stop the server."""

from __future__ import annotations

import functools
import os
import random
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from components.serving.server import request_log
from components.serving.server.request_log import RequestLog
from tests.support.programs import killed_request_log
from tests.support.runs.command import ROOT, SECONDS
from tests.support.servers.forked_command import ForkedCommand

BYTES = 1 << 30


def record(name: str) -> PredictionLog:
    log = PredictionLog()
    log.predict_log.request.model_spec.name = name
    return log


def read_names(folder: Path, pattern: str = "requests-*.tfrecord.gz") -> list[str]:
    files = sorted(map(str, folder.glob(pattern)))
    rows = tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator() if files else ()
    return [PredictionLog.FromString(row).predict_log.request.model_spec.name for row in rows]


def add(log: RequestLog, name: str) -> threading.Event:
    """Add a record. Return an event that is set when the log serializes the record."""
    serialized = threading.Event()
    log.add(lambda: (serialized.set(), record(name))[1])
    return serialized


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
def test_configured_share_of_requests_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float, share: float
) -> None:
    monkeypatch.setattr(request_log, "_QUEUE_RECORDS", 0)
    log = RequestLog(tmp_path / "new" / "log", rate, BYTES)
    for number in range(2000):
        add(log, str(number))
    log.close()
    names = read_names(tmp_path / "new" / "log")
    assert abs(len(names) - 2000 * share) <= (0 if share in (0, 1) else 120)
    assert names == sorted(names, key=int)


@pytest.mark.extended
def test_killed_process_does_not_lose_written_records(tmp_path: Path) -> None:
    code, _, err = ForkedCommand(killed_request_log.main, [str(tmp_path)], ROOT, os.environ).wait(SECONDS)
    assert code == -signal.SIGKILL, err
    assert read_names(tmp_path) == []
    RequestLog(tmp_path, 1.0, BYTES).close()
    assert read_names(tmp_path) == [str(number) for number in range(500)]


def test_only_the_user_of_the_server_can_read_the_log(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        log = RequestLog(tmp_path / "log", 1.0, BYTES)
        add(log, "a")
        log.close()
    finally:
        os.umask(previous)
    (file,) = (tmp_path / "log").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]


def test_oldest_files_are_deleted_when_the_folder_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_FILE_BYTES", 1)
    log = RequestLog(tmp_path, 1.0, 1000)
    for number in range(200):
        assert add(log, str(number)).wait(60)
    log.close()
    names = read_names(tmp_path)
    assert 5 < len(names) < 50
    assert names == [str(number) for number in range(200 - len(names), 200)]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1000


def test_size_is_bounded_while_a_file_grows(tmp_path: Path) -> None:
    sizes: list[int] = []

    def make_record(number: int) -> PredictionLog:
        # This runs in the thread that writes the files, so they do not change meanwhile.
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        # Random digits cannot be compressed to less than half of their size.
        return record(f"{number} {random.getrandbits(2_000):x}")

    log = RequestLog(tmp_path, 1.0, 20_000)
    for number in range(300):
        log._queue.put(functools.partial(make_record, number))
    log.close()
    assert 10_000 < max(sizes) <= 20_000
    assert len(read_names(tmp_path)) < 300


def test_records_contain_the_sampling_rate_and_their_time(tmp_path: Path) -> None:
    before = int(time.time())
    log = RequestLog(tmp_path, 0.5, BYTES)
    for number in range(50):
        add(log, str(number))
    log.close()
    files = [str(path) for path in tmp_path.iterdir()]
    rows = tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator()
    metadata = [PredictionLog.FromString(row).log_metadata for row in rows]
    assert {entry.sampling_config.sampling_rate for entry in metadata} == {0.5}
    assert all(before <= entry.timestamp_secs <= time.time() for entry in metadata)


def test_request_that_must_not_be_recorded_leaves_nothing(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, 1.0, BYTES)
    log.add(lambda: None)
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_old_files_are_deleted_while_no_request_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_DELETE_SECONDS", 0.01)
    log = RequestLog(tmp_path, 1.0, BYTES, max_days=2)
    old = tmp_path / f"requests-{time.time_ns() - 3 * 86_400 * 10**9}-1.tfrecord.gz"
    old.touch()
    end = time.monotonic() + 60
    while old.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    log.close()


def test_old_files_are_deleted(tmp_path: Path) -> None:
    day = 86_400 * 10**9
    for age in (3, 1):
        (tmp_path / f"requests-{time.time_ns() - age * day}-1.tfrecord.gz").touch()
    RequestLog(tmp_path, 1.0, BYTES, max_days=2).close()
    (remaining,) = tmp_path.iterdir()
    assert int(remaining.name.split("-")[1]) > time.time_ns() - 2 * day


def test_file_is_visible_once_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_FILE_BYTES", 1)
    visible: list[list[str]] = []
    log = RequestLog(tmp_path, 1.0, BYTES)
    log.add(lambda: record("a"))
    log.add(lambda: (visible.append(read_names(tmp_path)), record("b"))[1])
    log.close()
    assert visible == [["a"]]
    assert read_names(tmp_path) == ["a", "b"]
    assert not list(tmp_path.glob(".*"))


def test_records_that_arrive_too_fast_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_QUEUE_RECORDS", 4)
    entered, go = threading.Event(), threading.Event()
    log = RequestLog(tmp_path, 1.0, BYTES)
    log.add(lambda: (entered.set(), go.wait(60), record("slow"))[2])
    assert entered.wait(60)
    for number in range(10):
        add(log, str(number))
    go.set()
    log.close()
    assert log.dropped == 6
    assert read_names(tmp_path) == ["slow", "0", "1", "2", "3"]


def test_failing_disk_does_not_stop_the_log_or_its_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    log = RequestLog(tmp_path, 1.0, BYTES)
    log.add(full)  # type: ignore[arg-type]
    assert add(log, "after").wait(60)
    monkeypatch.setattr(Path, "replace", full)
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert "requests are not recorded" in caplog.text
    assert read_names(tmp_path, ".requests-*") == ["after"]
