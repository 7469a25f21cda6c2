"""Reads folders of PNG and JPEG files, one folder for each class, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from components.errors import InputError
from components.ingest import source
from components.ingest.config import ValueType

_BATCH = 8 << 20  # bytes of images in one record batch
_ENDS = {b"\x89PNG\r\n\x1a\n": b"IEND", b"\xff\xd8\xff": b"\xff\xd9"}
"""How a PNG and a JPEG start, and the mark that stands near their end unless the file was cut off."""


def label_type(paths: Iterable[str], given: ValueType | None = None) -> pa.DataType:
    """The type of the labels: as given; else int64 if the name of every class is an integer (0, 1, ...), else binary.

    Raises:
      InputError: the classes are to be integers, but are not; or are to be floats.
    """
    other = next((name for name in sorted({_class(path) for path in paths}) if not _is_integer(name)), None)
    if given == "float" or (given == "int" and other is not None):
        raise InputError(f"data.types: the classes cannot be {given}: {other or 'they are names'}", "set label: bytes")
    return pa.binary() if other is not None or given == "bytes" else pa.int64()


def read(paths: Iterable[str], label: pa.DataType) -> Iterator[pa.RecordBatch]:
    """The images as record batches: `image` (the encoded file), `label`, and `path` (class/file), all binary.

    Args:
      paths: the files, each in the folder of its class.
      label: int64 or binary, as `label_type` found over all files.

    Raises:
      InputError: a file is no PNG or JPEG image, or was cut off.
    """
    images: list[bytes] = []
    names: list[str] = []
    for path in paths:
        images.append(_image(path))
        names.append(path)
        if sum(map(len, images)) >= _BATCH:
            yield _batch(images, names, label)
            images, names = [], []
    if images:
        yield _batch(images, names, label)


def _batch(images: list[bytes], paths: list[str], label: pa.DataType) -> pa.RecordBatch:
    labels = [int(_class(path)) if label == pa.int64() else _class(path).encode() for path in paths]
    names = ["/".join(PurePosixPath(path).parts[-2:]).encode() for path in paths]
    columns = [pa.array(images, pa.binary()), pa.array(labels, label), pa.array(names, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, list(source.IMAGE_COLUMNS))


def _image(path: str) -> bytes:
    with source.open_binary(path) as file:
        data = file.read()
    end = next((end for start, end in _ENDS.items() if data.startswith(start)), None)
    if end is None:
        raise InputError(f"{path} is no PNG or JPEG image", "take it out of the folder, or convert it")
    # Cameras and editors append notes of their own, so the end mark need not be the very last bytes.
    if end not in data[-4096:]:
        raise InputError(
            f"{path} is a broken image: it is cut off after {len(data)} bytes", "replace it, or take it out"
        )
    return data


def _class(path: str) -> str:
    return PurePosixPath(path).parent.name


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 18
