"""RPC failures inside TensorFlow that tests must tolerate.

Seen once, with TensorFlow 2.16 and parameter servers: the coordinator sends an operation whose device is not text any
more ("String field 'tensorflow.eager.Operation.device' contains invalid UTF-8 data when serializing"), the worker
answers "Unable to parse request", and the coordinator ends. The supervisor starts the tasks again, which is what it is
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_TORN = b"'tensorflow.eager.Operation.device' contains invalid UTF-8 data when serializing"


def torn_requests(logs: Path) -> int:
    """Return the number of corrupted requests in the logs of a cluster's tasks."""
    return sum(log.read_bytes().count(_TORN) for log in logs.glob("*.log"))


def assert_undisturbed(counts: Mapping[str, int], steps: int, logs: Path) -> None:
    """Check that a training took its steps, and that all restarts were caused by corrupted requests."""
    assert counts["steps"] >= steps
    assert torn_requests(logs) or counts.items() >= {"steps": steps, "restarts": 0, "repeated": 0, "damaged": 0}.items()
