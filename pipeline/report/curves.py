"""The curves of a training, read from TensorBoard's event files without TensorFlow."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, types_pb2

Point = tuple[float, float]
"""Step, value."""

_HEAD, _FOOT = struct.Struct("<QI"), 4
"""A record of TFRecord files: length and checksum of the length, the data, and the data's checksum."""
_BYTES = 32 << 20
"""No more than so much of a file is read; histograms and profiles make files large, curves do not."""
_FILES = 50
_FORMATS = {types_pb2.DT_FLOAT: "<f", types_pb2.DT_DOUBLE: "<d"}
_FIELDS = {types_pb2.DT_FLOAT: "float_val", types_pb2.DT_DOUBLE: "double_val"}


def read(folder: Path) -> dict[str, dict[str, list[Point]]]:
    """The curves in a ModelRun's folder.

    Args:
      folder: of the artifact; the folders in it are the kinds of curves, such as `train` and `eval`.

    Returns:
      Name → kind → its points, by step. Values that are no finite number are left out.
    """
    found: dict[str, dict[str, list[Point]]] = {}
    for file in sorted(folder.rglob("*.tfevents.*"))[:_FILES]:
        kind = file.parent.relative_to(folder).as_posix()
        for name, step, value in _scalars(file):
            if math.isfinite(value):
                found.setdefault(name, {}).setdefault(kind, []).append((step, value))
    return {name: {kind: sorted(points) for kind, points in kinds.items()} for name, kinds in found.items()}


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    with file.open("rb") as stream:
        content = stream.read(_BYTES)
    for record in _records(content):
        try:
            event = event_pb2.Event.FromString(record)
        except DecodeError:
            # Torn by a crash; what stands before it still counts.
            return
        for each in event.summary.value:
            value = _value(each)
            if value is not None:
                yield each.tag, event.step, value


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD.size <= len(content):
        length, _ = _HEAD.unpack_from(content, at)
        start = at + _HEAD.size
        at = start + length + _FOOT
        # A file that is being written, or was cut, ends within a record.
        if at <= len(content):
            yield content[start : start + length]


def _value(told: Any) -> float | None:
    """A scalar, as either TensorFlow 1 or 2 writes it; None for all else."""
    if told.WhichOneof("value") == "simple_value":
        return float(told.simple_value)
    tensor = told.tensor
    if told.WhichOneof("value") != "tensor" or tensor.dtype not in _FORMATS or tensor.tensor_shape.dim:
        return None
    if tensor.tensor_content:
        [value] = struct.unpack(_FORMATS[tensor.dtype], tensor.tensor_content)
        return float(value)
    values = getattr(tensor, _FIELDS[tensor.dtype])
    return float(values[0]) if values else None
