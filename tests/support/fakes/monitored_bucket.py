"""Reads a request log and labels from URLs in a fork of the node server, whose TensorFlow reaches a fake object store.

The arguments are the folder of the log and the folder of the labels; it prints the keys and the labels' tips.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from components.data import request_log
from components.ingest.column_types import Kind
from components.ingest.config import DataConfig
from components.monitor import labels


def main(arguments: Sequence[str]) -> int:
    """Read the request log and the labels."""
    requests, path = arguments
    served = request_log.read([file.path for file in request_log.files([requests])], 100)[1]
    keys = labels.encode_keys(served.columns["id"])
    outcome_labels = labels.read(DataConfig(label="tips > 1", path=(path,)), "id", keys, {"tips": Kind.FLOAT})
    read = {"keys": [key.decode() for key in keys.to_pylist()], "tips": outcome_labels.columns["tips"].to_pylist()}
    print(json.dumps(read))  # noqa: T201 - the answer
    return 0
