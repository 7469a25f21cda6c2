"""Checks a model by a process that is forked beforehand, in a process without threads; see `in_fork_server.main_of`."""

from __future__ import annotations

import tensorflow as tf
from google.protobuf.message import Message
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from components.base import child_process
from components.trainer import export_check


def main(model: str, kill: bool) -> list[list[float]]:
    """Return the lengths that a model computes.

    Args:
      model: folder of a SavedModel that test_export_check has written.
      kill: whether the forked process is killed before the request; otherwise no other process may be started.
    """
    with export_check.waiting_process():
        [forked] = export_check._waiting
        if kill:
            forked.kill()
            forked.wait()
        else:
            child_process._PYTHON = "none"
        # TensorFlow's runtime in this process must start after the fork.
        examples = tf.constant([b"a", b"bcd"])
        with export_check.prediction_process() as predict:
            response = predict(model, {"serving_default": {"examples": examples}})
    assert forked.poll() is not None
    lengths: list[list[float]] = response["serving_default"]["length"].tolist()
    return lengths


def operations() -> list[str]:
    """Return the names of the operations that TensorFlow knows in this process."""
    known: Message = op_def_pb2.OpList()
    known.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return sorted(operation.name for operation in known.op)
