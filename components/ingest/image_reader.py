"""Read folders of PNG and JPEG files, one folder per class, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from components.base.errors import InputError
from components.data import image_facts
from components.ingest import image_check, input_files
from components.ingest.blocks import BadRow, Block, BlockSource, FileRange, ReaderProperties, RowLog
from components.ingest.config import ValueType


class ImageReader:
    """Reads image files, which have one row per file.

    Args:
      label: Type of the labels, int64 or binary; see `label_type`.
      max_megapixels: Maximum number of pixels of an image, in millions.
    """

    # Hash the image instead of the path, so that copies under two names are in the same split.
    properties = ReaderProperties(key_columns=("image",), files=("image",))

    def __init__(self, label: pa.DataType, max_megapixels: float) -> None:
        self._label, self._max_megapixels = label, max_megapixels

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the file as a range."""
        return FileRange(path, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the file as a single range."""
        return [self.first_range(path, split)]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the image as one row: `image` (the encoded file), `label`, and `path` (class/file) as binary."""
        row_log.add_range(file_range, 1)
        image_or_reason = image_check.read(file_range.path, self._max_megapixels)
        if isinstance(image_or_reason, str):
            row_log.add_bad_row(BadRow(file_range.path, file_range.number, 1, image_or_reason))
            return
        data, facts = image_or_reason
        name = _class(file_range.path)
        label = int(name) if self._label == pa.int64() else name.encode()
        path = "/".join(PurePosixPath(file_range.path).parts[-2:])
        columns = [
            pa.array([data], pa.binary()),
            pa.array([label], self._label),
            pa.array([path.encode()], pa.binary()),
        ]
        image = input_files.IMAGE_COLUMNS[0]
        yield Block(
            pa.RecordBatch.from_arrays(columns, list(input_files.IMAGE_COLUMNS)),
            (BlockSource(file_range, 1, (1).__add__),),
            images=image_facts.batch({image: [facts]}, {image: [path]}),
        )


def label_type(paths: Iterable[str], configured: ValueType | None = None) -> pa.DataType:
    """Return the type of the labels: the configured type, by default int64 if all class names are integers, or binary.

    Raises:
      InputError: If the configured type is float, or it is int and a class name is not an integer.
    """
    text_class = next((name for name in sorted({_class(path) for path in paths}) if not _is_integer(name)), None)
    if configured == "float" or (configured == "int" and text_class is not None):
        raise InputError(
            f"data.types: the classes cannot be {configured}: {text_class or 'they are names'}", "set label: bytes"
        )
    return pa.binary() if text_class is not None or configured == "bytes" else pa.int64()


def _class(path: str) -> str:
    return PurePosixPath(path).parent.name


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 18
