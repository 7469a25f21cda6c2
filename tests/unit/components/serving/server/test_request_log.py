"""Recorded requests are whole files of PredictionLogs; neither a slow disk nor a broken one holds up the server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from components.serving.server import request_log
from components.serving.server.request_log import RequestLog


def record(name: str) -> PredictionLog:
    log = PredictionLog()
    log.predict_log.request.model_spec.name = name
    return log


def recorded(folder: Path) -> list[str]:
    files = sorted(map(str, folder.glob("requests-*.tfrecord.gz")))
    rows = tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator() if files else ()
    return [PredictionLog.FromString(row).predict_log.request.model_spec.name for row in rows]


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
def test_the_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float, share: float) -> None:
    monkeypatch.setattr(request_log, "_WAITING", 0)
    log = RequestLog(tmp_path / "new" / "log", rate)
    for number in range(2000):
        log.add(lambda number=number: record(str(number)))  # type: ignore[misc]
    log.close()
    names = recorded(tmp_path / "new" / "log")
    assert abs(len(names) - 2000 * share) <= (0 if share in (0, 1) else 120)
    assert names == sorted(names, key=int)


def test_a_file_appears_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_FILE_BYTES", 1)
    seen: list[list[str]] = []
    second = threading.Event()

    def look() -> PredictionLog:
        seen.append(recorded(tmp_path))
        second.set()
        return record("b")

    log = RequestLog(tmp_path, 1.0)
    log.add(lambda: record("a"))
    log.add(look)
    assert second.wait(60)
    log.close()
    # While the second file was open, only the first one was to be seen.
    assert seen == [["a"]]
    assert recorded(tmp_path) == ["a", "b"]
    assert not list(tmp_path.glob(".*"))


def test_a_file_is_closed_in_time(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, 1.0, file_seconds=0.0)
    ready = threading.Event()
    for name in "ab":
        log.add(lambda name=name: record(name))  # type: ignore[misc]
    log.add(lambda: (ready.set(), record("c"))[1])
    assert ready.wait(60)
    log.close()
    assert recorded(tmp_path) == ["a", "b", "c"]


def test_what_comes_too_fast_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_WAITING", 4)
    entered, go = threading.Event(), threading.Event()

    def slow() -> PredictionLog:
        entered.set()
        assert go.wait(60)
        return record("slow")

    log = RequestLog(tmp_path, 1.0)
    log.add(slow)
    assert entered.wait(60)
    for number in range(10):
        log.add(lambda number=number: record(str(number)))  # type: ignore[misc]
    go.set()
    log.close()
    assert log.dropped == 6
    assert recorded(tmp_path) == ["slow", "0", "1", "2", "3"]


def test_a_disk_that_breaks_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tried = threading.Event()

    def broken() -> Any:
        tried.set()
        raise OSError("No space left on device")

    log = RequestLog(tmp_path, 1.0)
    log.add(broken)
    assert tried.wait(60)
    log.add(lambda: record("after"))
    log.close()
    assert recorded(tmp_path) == ["after"]
    assert "requests are not recorded" in caplog.text


def test_closing_on_a_full_disk_comes_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _target: Path) -> None:
        raise OSError("No space left on device")

    entered = threading.Event()
    monkeypatch.setattr(Path, "replace", full)
    log = RequestLog(tmp_path, 1.0)
    log.add(lambda: (entered.set(), record("a"))[1])
    assert entered.wait(60)
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
