"""What ingest found out about each image of the examples: size, mode, format, brightness, and a thumbnail.

Ingest decodes each image once, for a check. What it learns is stored beside the examples, a row for each of their
rows, so that statistics and the search for near duplicates decode none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import file_io
from components.data.checked_parquet import CheckedFile

FOLDER = "images"
"""In the folder of the examples; a file for each of their files."""
THUMBNAIL = 9
"""Height and width of a thumbnail, in pixels."""


class ImageFacts(NamedTuple):
    """What is known about an image.

    Attributes:
      width: In pixels.
      height: In pixels.
      mode: Pillow's: 1, L, LA, P, RGB or RGBA.
      format: PNG or JPEG.
      file_bytes: Size of the file.
      brightness: Mean luma, from 0 (black) to 1 (white).
      thumbnail: Luma of the image reduced to THUMBNAIL by THUMBNAIL pixels, row by row.
    """

    width: int
    height: int
    mode: str
    format: str
    file_bytes: int
    brightness: float
    thumbnail: bytes


_TYPES = {
    "width": pa.int64(),
    "height": pa.int64(),
    "mode": pa.binary(),
    "format": pa.binary(),
    "file_bytes": pa.int64(),
    "brightness": pa.float32(),
    "thumbnail": pa.binary(),
}
FIGURES = ("width", "height", "mode", "format", "file_bytes", "brightness")
"""The facts that have statistics."""


def batch(facts: Mapping[str, Sequence[ImageFacts | None]], names: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Return facts as columns: `COLUMN.name`, `COLUMN.width` and so on; null where a row has no image.

    Args:
      facts: Column of images → those of each row.
      names: Column of images → what each image is called in reports.
    """
    arrays: dict[str, pa.Array] = {}
    for column, of_rows in facts.items():
        arrays[f"{column}.name"] = pa.array([name.encode() for name in names[column]], pa.binary())
        for field, type_ in _TYPES.items():
            values = [None if each is None else getattr(each, field) for each in of_rows]
            arrays[f"{column}.{field}"] = pa.array(values, type_)
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def file_name(split: str, number: int, count: int) -> str:
    """Return the name of the file, in FOLDER, with the facts of a split's file of examples.

    Args:
      split: The split.
      number: Of the file of examples, from 0.
      count: How many files the split has.
    """
    return f"{split}-{number:05d}-of-{count:05d}.parquet"


def columns(uri: str, split: str) -> list[str]:
    """Return the columns of images of a split of examples; none if ingest has not looked at images.

    Args:
      uri: The folder of the examples.
      split: The split.
    """
    for path in _files(uri, split)[:1]:
        with file_io.open_binary(path) as file:
            names = parquet.read_schema(file).names
        return [name.removesuffix(".name") for name in names if name.endswith(".name")]
    return []


def read(uri: str, split: str, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the facts of a split, a row for each row of its examples.

    Args:
      uri: The folder of the examples.
      split: The split.
      wanted: The columns to read, such as `image.width`.
    """
    for path in _files(uri, split):
        try:
            with file_io.open_binary(path) as file:
                for each in parquet.ParquetFile(CheckedFile(file)).iter_batches(
                    columns=list(wanted), use_threads=False
                ):
                    # The order is that of the file.
                    arrays = [each.column(each.schema.get_field_index(name)) for name in wanted]
                    yield pa.RecordBatch.from_arrays(arrays, list(wanted))
        except (OSError, pa.ArrowException) as error:
            raise MachineError(
                f"{path}: the facts of images cannot be read: {error}", "run ExampleGen again with --no-cache"
            ) from error


def _files(uri: str, split: str) -> list[str]:
    folder = file_io.join(uri, FOLDER)
    return sorted(file_io.file_system(uri).glob(file_io.join(folder, f"{split}-[0-9]*.parquet")))
