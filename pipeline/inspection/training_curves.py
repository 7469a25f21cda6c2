"""Reads training curves from TensorBoard's event files, without importing TensorFlow."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, summary_pb2, types_pb2

from components.data import file_io

Point = tuple[float, float]
"""A point of a curve: step, value."""

_HEAD, _FOOT = struct.Struct("<QI"), 4
"""Format of a TFRecord around the data: its length and the checksum of the length, then the checksum of the data."""
_BYTES = 32 << 20
"""Maximum number of bytes to read from a file. Only files with histograms or profiles are larger."""
_FILES = 50
"""Maximum number of files to read."""
_FORMATS = {types_pb2.DT_FLOAT: "<f", types_pb2.DT_DOUBLE: "<d"}
_FIELDS = {types_pb2.DT_FLOAT: "float_val", types_pb2.DT_DOUBLE: "double_val"}


def read(folder: str | Path) -> dict[str, dict[str, list[Point]]]:
    """Read the curves of a ModelRun artifact.

    Args:
      folder: Path or URL of the artifact. Its subfolders, such as `train` and `eval`, are the kinds of curves.

    Returns:
      The points of the curves by name, then by kind, sorted by step. Values that are not finite are left out.
    """
    curves: dict[str, dict[str, list[Point]]] = {}
    root = str(folder)
    files = [file for file in file_io.list_files(root) if ".tfevents." in file.rpartition("/")[2]]
    for file in files[:_FILES]:
        kind = file.rpartition("/")[0].removeprefix(root).strip("/") or "."
        for name, step, value in _read_scalars(file):
            if math.isfinite(value):
                curves.setdefault(name, {}).setdefault(kind, []).append((step, value))
    return {name: {kind: sorted(points) for kind, points in kinds.items()} for name, kinds in curves.items()}


def _read_scalars(file: str) -> Iterator[tuple[str, int, float]]:
    """Yield the name, the step and the value of all scalars in a file."""
    with file_io.open_binary(file) as stream:
        content = stream.read(_BYTES)
    for record in _split_records(content):
        try:
            event = event_pb2.Event.FromString(record)
        except DecodeError:
            # A crash can damage the last record of a file; the records before it are valid.
            return
        for summary_value in event.summary.value:
            scalar = _parse_scalar(summary_value)
            if scalar is not None:
                yield summary_value.tag, event.step, scalar


def _split_records(content: bytes) -> Iterator[bytes]:
    offset = 0
    while offset + _HEAD.size <= len(content):
        length, _ = _HEAD.unpack_from(content, offset)
        start = offset + _HEAD.size
        offset = start + length + _FOOT
        # A file that is still being written, or that is larger than the limit, ends within a record.
        if offset <= len(content):
            yield content[start : start + length]


def _parse_scalar(value: summary_pb2.Summary.Value) -> float | None:
    """Return a scalar in the format of TensorFlow 1 or 2. None if the value is not a scalar."""
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
