"""A program that writes 500 records to a request log and is killed before it closes it; its argument: the folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from components.serving.server.request_log import RequestLog


def main(arguments: Sequence[str]) -> int:
    """Write the requests and kill this process."""
    log = RequestLog(Path(arguments[0]), 1.0, 1 << 30)
    for number in range(500):
        record = PredictionLog()
        record.predict_log.request.model_spec.name = str(number)
        log._queue.put(lambda record=record: record)
    log._queue.put(lambda: os.kill(os.getpid(), signal.SIGKILL))
    log.close()
    return 1
