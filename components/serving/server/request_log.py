"""A sample of requests and answers, as PredictionLog records in TFRecord files; what watches for drift reads them."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

_WAITING = 256
"""Records between the server and the disk; with more, what comes is not recorded: a slow disk must not slow answers."""
_FILE_BYTES = 64 << 20
_FILE_SECONDS = 300.0


class RequestLog:
    """Writes records from a thread of its own; a file has its final name when it is whole.

    Args:
      folder: where to; made if it is not there.
      rate: share of requests that are recorded.
      file_seconds: the longest that a file is written to.
    """

    def __init__(self, folder: Path, rate: float, file_seconds: float = _FILE_SECONDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rate, self._file_seconds = folder, rate, file_seconds
        self._chance = random.Random()  # noqa: S311 - a sample, no secret
        self._records: queue.Queue[Callable[[], Any] | None] = queue.Queue(_WAITING)
        self.dropped = 0
        self._files = 0
        self._ended = False
        self._thread = threading.Thread(target=self._write, name="request log", daemon=True)
        self._thread.start()

    def add(self, record: Callable[[], Any]) -> None:
        """Records a request, or not, as chance wills.

        Args:
          record: makes the PredictionLog; called later, in another thread.
        """
        if self._chance.random() < self._rate:
            try:
                self._records.put_nowait(record)
            except queue.Full:
                self.dropped += 1

    def close(self) -> None:
        """Writes what is waiting."""
        self._records.put(None)
        self._thread.join()

    def _write(self) -> None:
        while not self._ended:
            if (first := self._next(None)) is not None:
                try:
                    self._write_file(first)
                except Exception:
                    logging.exception("requests are not recorded: %s", self._folder)

    def _next(self, seconds: float | None) -> Callable[[], Any] | None:
        """The next record; None if none comes in time, or the log is closed."""
        with contextlib.suppress(queue.Empty):
            record = self._records.get(timeout=seconds)
            self._ended = record is None
            return record
        return None

    def _write_file(self, first: Callable[[], Any]) -> None:
        # Readers leave hidden files alone.
        self._files += 1
        name = f"requests-{time.time_ns()}-{os.getpid()}-{self._files}.tfrecord.gz"
        hidden, size = self._folder / f".{name}", 0
        until = time.monotonic() + self._file_seconds
        with tf.io.TFRecordWriter(str(hidden), tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
            record: Callable[[], Any] | None = first
            while record is not None:
                serialized = record().SerializeToString()
                writer.write(serialized)
                size += len(serialized)
                if size >= _FILE_BYTES:
                    break
                record = self._next(max(0.0, until - time.monotonic()))
        hidden.replace(self._folder / name)
