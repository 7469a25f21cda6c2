"""Reads a training's curves from TensorBoard's event files, without TensorFlow."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, summary_pb2, types_pb2

Point = tuple[float, float]
"""Step, value."""

_HEAD, _FOOT = struct.Struct("<QI"), 4
"""Around the data of a TFRecord: the length and its checksum before it, the data's checksum after it."""
_BYTES = 32 << 20
"""Bytes to read of a file at most; histograms and profiles make files large, curves do not."""
_FILES = 50
_FORMATS = {types_pb2.DT_FLOAT: "<f", types_pb2.DT_DOUBLE: "<d"}
_FIELDS = {types_pb2.DT_FLOAT: "float_val", types_pb2.DT_DOUBLE: "double_val"}


def read(folder: Path) -> dict[str, dict[str, list[Point]]]:
    """Reads the curves in a ModelRun's folder.

    Args:
      folder: of the artifact; its subfolders, such as `train` and `eval`, are the kinds of curves.

    Returns:
      Name → kind → points, sorted by step; without values that are not finite.
    """
    curves: dict[str, dict[str, list[Point]]] = {}
    for file in sorted(folder.rglob("*.tfevents.*"))[:_FILES]:
        kind = file.parent.relative_to(folder).as_posix()
        for name, step, value in _scalars(file):
            if math.isfinite(value):
                curves.setdefault(name, {}).setdefault(kind, []).append((step, value))
    return {name: {kind: sorted(points) for kind, points in kinds.items()} for name, kinds in curves.items()}


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    with file.open("rb") as stream:
        content = stream.read(_BYTES)
    for record in _records(content):
        try:
            event = event_pb2.Event.FromString(record)
        except DecodeError:
            # Damaged by a crash; the records before it are valid.
            return
        for each in event.summary.value:
            value = _scalar(each)
            if value is not None:
                yield each.tag, event.step, value


def _records(content: bytes) -> Iterator[bytes]:
    offset = 0
    while offset + _HEAD.size <= len(content):
        length, _ = _HEAD.unpack_from(content, offset)
        start = offset + _HEAD.size
        offset = start + length + _FOOT
        # A file that is being written, or longer than the limit, ends within a record.
        if offset <= len(content):
            yield content[start : start + length]


def _scalar(value: summary_pb2.Summary.Value) -> float | None:
    """Returns a scalar, in the format of TensorFlow 1 or 2; None for any other value."""
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    tensor = value.tensor
    if value.WhichOneof("value") != "tensor" or tensor.dtype not in _FORMATS or tensor.tensor_shape.dim:
        return None
    if tensor.tensor_content:
        [number] = struct.unpack(_FORMATS[tensor.dtype], tensor.tensor_content)
        return float(number)
    values = getattr(tensor, _FIELDS[tensor.dtype])
    return float(values[0]) if values else None
