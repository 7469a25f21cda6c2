"""Reads folders of PNG and JPEG files, one folder for each class, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from components.errors import InputError
from components.ingest import source
from components.ingest.config import ValueType
from components.ingest.rows import BadRow, Block, Ledger, Piece, Segment, Traits

_ENDS = {b"\x89PNG\r\n\x1a\n": b"IEND", b"\xff\xd8\xff": b"\xff\xd9"}
"""How a PNG and a JPEG start, and the mark that stands near their end unless the file was cut off."""


class ImageReader:
    """Reads images, each a file of one row.

    Args:
      label: the type of the labels, as `label_type` found it over all files: int64 or binary.
    """

    # The same image twice, under two names, must not be trained on and evaluated with.
    traits = Traits(decisive=("image",))

    def __init__(self, label: pa.DataType) -> None:
        self._label = label

    def head(self, path: str, split: str | None) -> Piece:
        """The file."""
        return Piece(path, split=split)

    def cut(self, path: str, split: str | None) -> list[Piece]:
        """The file as its one piece."""
        return [self.head(path, split)]

    def read(self, piece: Piece, ledger: Ledger) -> Iterator[Block]:
        """The image as a block of one row: `image` (the encoded file), `label`, and `path` (class/file) as binary."""
        ledger.read(piece, 1)
        with source.open_binary(piece.path) as file:
            data = file.read()
        if reason := _unfit(data):
            ledger.bad(BadRow(piece.path, piece.number, 1, reason))
            return
        name = _class(piece.path)
        label = int(name) if self._label == pa.int64() else name.encode()
        path = "/".join(PurePosixPath(piece.path).parts[-2:]).encode()
        columns = [pa.array([data], pa.binary()), pa.array([label], self._label), pa.array([path], pa.binary())]
        yield Block(pa.RecordBatch.from_arrays(columns, list(source.IMAGE_COLUMNS)), (Segment(piece, 1, (1).__add__),))


def label_type(paths: Iterable[str], given: ValueType | None = None) -> pa.DataType:
    """The type of the labels: as given; else int64 if the name of every class is an integer (0, 1, ...), else binary.

    Raises:
      InputError: the classes are to be integers, but are not; or are to be floats.
    """
    other = next((name for name in sorted({_class(path) for path in paths}) if not _is_integer(name)), None)
    if given == "float" or (given == "int" and other is not None):
        raise InputError(f"data.types: the classes cannot be {given}: {other or 'they are names'}", "set label: bytes")
    return pa.binary() if other is not None or given == "bytes" else pa.int64()


def _unfit(data: bytes) -> str | None:
    """Why a file is no image that can be taken."""
    end = next((end for start, end in _ENDS.items() if data.startswith(start)), None)
    if end is None:
        return "expected a PNG or JPEG image, received another file"
    # Cameras and editors append notes of their own, so the end mark need not be the very last bytes.
    if end not in data[-4096:]:
        return f"expected a whole image, received one that is cut off after {len(data)} bytes"
    return None


def _class(path: str) -> str:
    return PurePosixPath(path).parent.name


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 18
