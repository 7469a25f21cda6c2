"""Record a sample of requests and responses as PredictionLog messages in compressed TFRecord files."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

_QUEUE_RECORDS = 256
"""Maximum number of records that wait to be written. Further records are dropped, so that a slow disk does not delay
responses."""
_FILE_BYTES = 64 << 20
_FILE_SECONDS = 300.0
_DELETE_SECONDS = 3600.0
"""Time between deletions of old files while no request arrives."""


class RequestLog:
    """Writes records in a separate thread.

    Every record is handed to the operating system before the next record is taken from the queue, so a killed process
    loses at most the records in the queue. A file has a hidden name while it grows. Hidden files of a killed process
    become visible at the next start. Only the user of the server can read the files.

    Every record has the share of requests that are recorded, and the time of the request, in its `log_metadata`.

    Args:
      folder: Folder of the files. It is created if it does not exist.
      rate: Share of requests to record, from 0 to 1.
      max_bytes: Maximum size of all files in the folder, with the file that is being written. The oldest files are
        deleted first.
      max_days: Maximum age of a file since it was created. Older files are deleted when the server starts, before and
        after a file is written, and every hour without a request.
    """

    def __init__(self, folder: Path, rate: float, max_bytes: int, max_days: float = 90.0) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for hidden in folder.glob(".requests-*"):
            hidden.replace(folder / hidden.name[1:])
        self._folder, self._rate, self._max_bytes, self._max_days = folder, rate, max_bytes, max_days
        self._delete_oldest()
        self._queue: queue.Queue[Callable[[], Any] | None] = queue.Queue(_QUEUE_RECORDS)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)
        self._thread.start()

    def add(self, record: Callable[[], Any]) -> None:
        """Record a request if the random sample includes it.

        Args:
          record: Function that returns the PredictionLog, or None if the request must not be recorded. It is called in
            the thread of the log.
        """
        if random.random() < self._rate:  # noqa: S311 - not used for security
            try:
                self._queue.put_nowait(functools.partial(self._add_metadata, int(time.time()), record))
            except queue.Full:
                self.dropped += 1

    def close(self) -> None:
        """Write the records in the queue and stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _add_metadata(self, seconds: int, record: Callable[[], Any]) -> Any:
        log = record()
        if log is not None:
            log.log_metadata.sampling_config.sampling_rate = self._rate
            log.log_metadata.timestamp_secs = seconds
        return log

    def _run(self) -> None:
        is_open = True
        while is_open:
            try:
                is_open = self._handle_next()
            except Exception:
                logging.exception("requests are not recorded in %s", self._folder)

    def _handle_next(self) -> bool:
        """Write the next record and the records that follow it to a file; return False if the log was closed."""
        try:
            record = self._queue.get(timeout=_DELETE_SECONDS)
        except queue.Empty:
            self._delete_oldest()
            return True
        if record is not None:
            self._write_file(record)
        return record is not None

    def _write_file(self, record: Callable[[], Any] | None) -> None:
        most_bytes = min(_FILE_BYTES, self._max_bytes // 2)
        self._delete_oldest(most_bytes)
        path = self._folder / f".requests-{time.time_ns()}-{os.getpid()}.tfrecord.gz"
        path.touch(mode=0o600)
        size, end = 0, time.monotonic() + _FILE_SECONDS
        # Without a flush mode, flush() leaves records in the buffer of zlib.
        options = tf.io.TFRecordOptions(compression_type="GZIP", flush_mode=zlib.Z_SYNC_FLUSH)
        try:
            with tf.io.TFRecordWriter(str(path), options) as writer, contextlib.suppress(queue.Empty):
                while record is not None:
                    log = record()
                    if log is not None:
                        writer.write(content := log.SerializeToString())
                        writer.flush()
                        size += len(content)
                    remaining = end - time.monotonic()
                    if remaining <= 0 or size >= most_bytes:
                        return
                    record = self._queue.get(timeout=remaining)
                self._queue.put(None)  # tells _handle_next to end as well
        finally:
            path.replace(path.with_name(path.name[1:])) if size else path.unlink()
            self._delete_oldest()

    def _delete_oldest(self, reserved: int = 0) -> None:
        """Delete the files that are too old, and the oldest files until `reserved` bytes are free. Keep the newest."""
        files = sorted(self._folder.glob("requests-*"))
        oldest = time.time_ns() - self._max_days * 86_400e9
        while files and (
            int(files[0].name.split("-")[1]) < oldest
            or (len(files) > 1 and sum(file.stat().st_size for file in files) > self._max_bytes - reserved)
        ):
            files.pop(0).unlink(missing_ok=True)
