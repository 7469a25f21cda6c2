"""Read tables with the names of image files, and add the images as a column."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from components.base.errors import InputError
from components.base.files import is_remote
from components.data import file_io, image_facts
from components.data.image_facts import ImageFacts
from components.ingest import image_check
from components.ingest.blocks import Block, FileRange, Reader, RowLog, drop_rows, report_bad_rows
from components.ingest.config import ImagesConfig

_BLOCK_BYTES = 8 << 20
"""Bytes of images after which a block ends."""
_SAMPLE = 1_000
"""Number of files whose size is looked up to estimate the size of all files."""
_NAME_ERRORS = frozenset({errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Error numbers that the name of a file causes."""
_REQUESTS = 32
"""Maximum number of concurrent requests to a remote file system."""


class ImageTable:
    """Reads the rows of a table with the images that they name.

    Args:
      table: Reader of the table.
      config: Section `data.images` of the config, with `path_column`.
      keep_path: Whether the column with the names of the files is kept.
    """

    def __init__(self, table: Reader, config: ImagesConfig, keep_path: bool = True) -> None:
        self.table, self._config, self._keep_path = table, config, keep_path
        # Hash the image instead of the row, so that copies under two names are in the same split.
        self.properties = dataclasses.replace(
            table.properties, key_columns=(config.column,), files=(*table.properties.files, config.column)
        )

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the first range of the table."""
        return self.table.first_range(path, split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the ranges of the table."""
        return self.table.ranges(path, split)

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range, about 8 MiB of images at a time. Rows without a valid image go to the log.

        Raises:
          InputError: If the reader of the table raises it.
          OSError: If an existing file cannot be read.
        """
        for block in self.table.read(file_range, row_log):
            names = _read_names(block, str(self._config.path_column))
            start, size, images = 0, 0, list[_ImageOrReason]()
            for row, image in enumerate(self._read_images(file_range.path, names)):
                images.append(image)
                size += 0 if isinstance(image, str) else len(image[0])
                if size >= _BLOCK_BYTES or row == len(names) - 1:
                    yield from self._add_images(block, start, images, names, row_log)
                    start, size, images = row + 1, 0, []

    def _read_images(self, table: str, names: Sequence[str | None]) -> Iterator[_ImageOrReason]:
        """Yield the image of every row. Remote images are read concurrently, because a request is slow."""
        paths = [resolve(name, table, self._config) if name else None for name in names]
        if not any(path and is_remote(path) for path in paths):
            yield from map(self._read_image, paths)
            return
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for start in range(0, len(paths), _REQUESTS):
                yield from pool.map(self._read_image, paths[start : start + _REQUESTS])

    def _read_image(self, path: str | None) -> _ImageOrReason:
        if path is None:
            return "expected the name of an image file, received none"
        try:
            with file_io.missing_as_file_not_found():
                image = image_check.read(path, self._config.max_megapixels)
        except InputError as error:
            return error.headline
        except (FileNotFoundError, ValueError):
            return f"expected an image file, there is none at {path}"
        except OSError as error:
            # Any other error, such as a failing disk, does not mean that the row is bad.
            if error.errno not in _NAME_ERRORS:
                raise
            return f"expected an image file, there is none at {path}"
        return f"{path}: {image}" if isinstance(image, str) else image

    def _add_images(
        self,
        block: Block,
        start: int,
        images_or_reasons: Sequence[_ImageOrReason],
        names: Sequence[str | None],
        row_log: RowLog,
    ) -> Iterator[Block]:
        """Yield the rows from index `start` that have an image, as one block, and report the other rows."""
        column, path_column = self._config.column, str(self._config.path_column)
        bad = {start + at: (path_column, item) for at, item in enumerate(images_or_reasons) if isinstance(item, str)}
        report_bad_rows(block, bad, row_log)
        images = [item for item in images_or_reasons if not isinstance(item, str)]
        if not images:
            return
        stop = start + len(images_or_reasons)
        rows = drop_rows(block, [*range(start), *bad, *range(stop, block.columns.num_rows)])
        image_names = [str(names[row]) for row in range(start, stop) if row not in bad]
        arrays = {
            name: array
            for name, array in zip(rows.columns.schema.names, rows.columns.columns, strict=True)
            if self._keep_path or name != path_column
        }
        arrays[column] = pa.array([data for data, _ in images], pa.binary())
        yield dataclasses.replace(
            rows,
            columns=pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)),
            images=image_facts.batch({column: [facts for _, facts in images]}, {column: image_names}),
        )


_ImageOrReason = tuple[bytes, ImageFacts] | str
"""The bytes and the facts of an image, or the reason why the row is bad."""


def resolve(name: str, table: str, config: ImagesConfig) -> str:
    """Return the path of an image.

    Args:
      name: Name of the image in the table.
      table: Path of the table's file.
      config: Section `data.images` of the config.
    """
    if is_remote(name):
        return name
    return file_io.join(posixpath.dirname(table) if config.folder is None else config.folder, name)


def fingerprint(table: Reader, paths: Iterable[str], config: ImagesConfig) -> str:
    """Compute a digest of the names, sizes and modification times of the images that tables name, in row order.

    It needs one pass over the tables and does not open images.

    Args:
      table: Reader of the column `path_column`.
      paths: Paths of the tables.
      config: Section `data.images` of the config.
    """
    digest = hashlib.sha256()
    count = total = 0
    for image_paths in _list_images(table, paths, config):
        for path, stat in zip(image_paths, file_io.stats(image_paths), strict=True):
            count, total = count + 1, total + (stat[0] if stat else 0)
            digest.update(f"{path}\0{stat}\n".encode(errors="surrogatepass"))
    return f"images:{count},image_bytes:{total},sha256:{digest.hexdigest()}"


def estimate_size(table: Reader, paths: Iterable[str], config: ImagesConfig) -> int:
    """Estimate the total bytes of the images that tables name, from the sizes of the first images.

    Args:
      table: Reader of the column `path_column`.
      paths: Paths of the tables.
      config: Section `data.images` of the config.
    """
    sizes: list[int] = []
    count = 0
    for image_paths in _list_images(table, paths, config):
        count += len(image_paths)
        if len(sizes) < _SAMPLE:
            sizes += [stat[0] for stat in file_io.stats(image_paths[: _SAMPLE - len(sizes)]) if stat]
    return sum(sizes) * count // len(sizes) if sizes else 0


def _list_images(table: Reader, paths: Iterable[str], config: ImagesConfig) -> Iterator[list[str]]:
    """Yield the paths of the images that rows name, a block of rows at a time."""
    log = RowLog(None)
    for path in paths:
        for file_range in table.ranges(path, None):
            for block in table.read(file_range, log):
                names = _read_names(block, str(config.path_column))
                yield [resolve(name, path, config) for name in names if name]


def _read_names(block: Block, column: str) -> list[str | None]:
    """Return the names of the files. Bytes that are not UTF-8 become U+FFFD, so the file will not be found."""
    values = block.columns.column(block.columns.schema.get_field_index(column)).to_pylist()
    return [_decode_name(value) for value in values]


def _decode_name(value: object) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
