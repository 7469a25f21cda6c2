"""Small request logs, as a model server writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2


def record(version: int, signature: str, answers: Sequence[float], answered_by: int = 0, **inputs: Any) -> bytes:
    """Return a request with these inputs, and the answers: a score for each row."""
    log = prediction_log_pb2.PredictionLog()
    request, response = log.predict_log.request, log.predict_log.response
    request.model_spec.signature_name = signature
    request.model_spec.version.value = version
    if answered_by:
        response.model_spec.version.value = answered_by
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    response.outputs["score"].CopyFrom(tf.make_tensor_proto(np.array(answers, np.float32)[:, np.newaxis]))
    return bytes(log.SerializeToString())


def raw(version: int, hours: Sequence[float], zip_: Sequence[str], count: Sequence[int], **more: Any) -> bytes:
    """Return a request to the signature `raw`."""
    columns = {"hours": np.array(hours, np.float32), "zip": np.array(zip_, object), "count": np.array(count, np.int64)}
    return record(version, "raw", hours, **columns, **more)


def write(path: Path, *records: bytes) -> str:
    """Write a file of a log; return its path."""
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
        for record in records:
            writer.write(record)
    return str(path)
