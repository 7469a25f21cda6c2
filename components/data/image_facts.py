"""Facts about the images of the examples: size, mode, format, brightness, and a thumbnail.

Ingest decodes every image once, to check it, and stores the facts in the folder of the examples, with one row per
example. So statistics and the search for near duplicates do not decode images again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import file_io
from components.data.checked_parquet import CheckedFile
from components.data.parallel_reads import read_in_parallel

FOLDER = "images"
"""Folder of the facts in the folder of the examples, with one file per file of examples."""
THUMBNAIL = 9
"""Height and width of a thumbnail, in pixels."""


class ImageFacts(NamedTuple):
    """Facts about an image.

    Attributes:
      width: Width in pixels.
      height: Height in pixels.
      mode: Mode in Pillow: 1, L, LA, P, RGB or RGBA.
      format: PNG or JPEG.
      file_bytes: Size of the file in bytes.
      brightness: Mean luma, from 0 (black) to 1 (white).
      thumbnail: Luma of the image, reduced to THUMBNAIL by THUMBNAIL pixels, row by row.
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
"""The facts for which statistics are computed."""


def batch(facts: Mapping[str, Sequence[ImageFacts | None]], names: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Convert facts to columns `COLUMN.name`, `COLUMN.width` and so on; null if a row lacks an image.

    Args:
      facts: Column of images → facts of the rows.
      names: Column of images → names of the images in reports.
    """
    arrays: dict[str, pa.Array] = {}
    for column, row_facts in facts.items():
        arrays[f"{column}.name"] = pa.array([name.encode() for name in names[column]], pa.binary())
        for field, type_ in _TYPES.items():
            values = [None if image is None else getattr(image, field) for image in row_facts]
            arrays[f"{column}.{field}"] = pa.array(values, type_)
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def file_name(split: str, number: int, count: int) -> str:
    """Return the name of the file in FOLDER that belongs to a file of examples.

    Args:
      split: Name of the split.
      number: Number of the file of examples in the split, from 0.
      count: Number of files in the split.
    """
    return f"{split}-{number:05d}-of-{count:05d}.parquet"


def columns(uri: str, split: str) -> list[str]:
    """Return the names of the columns of images; empty if ingest did not examine images.

    Args:
      uri: Folder of the examples.
      split: Name of the split.
    """
    for path in files(uri, split)[:1]:
        with file_io.open_binary(path) as file:
            names = parquet.read_schema(file).names
        return [name.removesuffix(".name") for name in names if name.endswith(".name")]
    return []


def read(paths: Iterable[str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield facts, with one row per example.

    Args:
      paths: Files of facts, see `files`.
      names: Columns to read, such as `image.width`.
    """
    for path in paths:
        try:
            with file_io.open_binary(path) as file:
                parquet_file = parquet.ParquetFile(CheckedFile(file))
                for batch in parquet_file.iter_batches(columns=list(names), use_threads=False):
                    # pyarrow returns the columns in the order of the file.
                    arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                    yield pa.RecordBatch.from_arrays(arrays, list(names))
        except (OSError, pa.ArrowException) as error:
            raise MachineError(
                f"{path}: the facts of images cannot be read: {error}", "run ExampleGen again with --no-cache"
            ) from error


def files(uri: str, split: str) -> list[str]:
    """Return the files of facts of a split, in the order of the files of examples."""
    folder = file_io.join(uri, FOLDER)
    return sorted(file_io.file_system(uri).glob(file_io.join(folder, f"{split}-[0-9]*.parquet")))


def count_rows(paths: Iterable[str]) -> int:
    """Return the number of rows of files of facts; only the footers are read."""
    return sum(read_in_parallel(_read_row_count, paths))


def _read_row_count(path: str) -> int:
    with file_io.open_binary(path) as file:
        return int(parquet.ParquetFile(file).metadata.num_rows)
