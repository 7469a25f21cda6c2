"""Reads tables with the names of image files: each row gets the file as a further column."""

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
"""Files whose size is looked up for an estimate of all."""
_OF_NAME = frozenset({errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Numbers of errors that the name of a file causes."""
_REQUESTS = 32
"""Requests to a remote file system at the same time."""


class ImageTable:
    """Reads the rows of a table with the images that they name.

    Args:
      table: Reads the table.
      config: The section of the config, with `path_column`.
      keep_path: Whether the names of the files stay a column.
    """

    def __init__(self, table: Reader, config: ImagesConfig, keep_path: bool = True) -> None:
        self.table, self._config, self._keep_path = table, config, keep_path
        # An image with two names must not be in two splits.
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
        """Yield the rows of a range, about 8 MiB of images at a time; rows without a sound image go to the log.

        Raises:
          InputError: As the reader of the table.
          OSError: A file exists and cannot be read.
        """
        for block in self.table.read(file_range, row_log):
            names = _names(block, str(self._config.path_column))
            start, size, found = 0, 0, list[_Found]()
            for row, image in enumerate(self._images(file_range.path, names)):
                found.append(image)
                size += 0 if isinstance(image, str) else len(image[0])
                if size >= _BLOCK_BYTES or row == len(names) - 1:
                    yield from self._with_images(block, start, found, names, row_log)
                    start, size, found = row + 1, 0, []

    def _images(self, table: str, names: Sequence[str | None]) -> Iterator[_Found]:
        """Yield the image of each row; of remote ones some at the same time, since each request takes long."""
        paths = [resolve(name, table, self._config) if name else None for name in names]
        if not any(path and is_remote(path) for path in paths):
            yield from map(self._image, paths)
            return
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for start in range(0, len(paths), _REQUESTS):
                yield from pool.map(self._image, paths[start : start + _REQUESTS])

    def _image(self, path: str | None) -> _Found:
        if path is None:
            return "expected the name of an image file, received none"
        try:
            with file_io.missing_as_file_not_found():
                found = image_check.read(path, self._config.max_megapixels)
        except InputError as error:
            return error.headline
        except (FileNotFoundError, ValueError):
            return f"expected an image file, there is none at {path}"
        except OSError as error:
            # Any other error, as of a disk, says nothing about the row.
            if error.errno not in _OF_NAME:
                raise
            return f"expected an image file, there is none at {path}"
        return f"{path}: {found}" if isinstance(found, str) else found

    def _with_images(
        self, block: Block, start: int, found: Sequence[_Found], names: Sequence[str | None], row_log: RowLog
    ) -> Iterator[Block]:
        """Yield the rows from `start` on that have an image; report the others."""
        column, path_column = self._config.column, str(self._config.path_column)
        bad = {start + at: (path_column, each) for at, each in enumerate(found) if isinstance(each, str)}
        report_bad_rows(block, bad, row_log)
        images = [each for each in found if not isinstance(each, str)]
        if not images:
            return
        stop = start + len(found)
        rows = drop_rows(block, [*range(start), *bad, *range(stop, block.columns.num_rows)])
        kept = [str(names[row]) for row in range(start, stop) if row not in bad]
        arrays = {
            name: array
            for name, array in zip(rows.columns.schema.names, rows.columns.columns, strict=True)
            if self._keep_path or name != path_column
        }
        arrays[column] = pa.array([data for data, _ in images], pa.binary())
        yield dataclasses.replace(
            rows,
            columns=pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)),
            images=image_facts.batch({column: [facts for _, facts in images]}, {column: kept}),
        )


_Found = tuple[bytes, ImageFacts] | str
"""The file of a row and its facts, or why the row is bad."""


def resolve(name: str, table: str, config: ImagesConfig) -> str:
    """Return the path of an image.

    Args:
      name: As in the table.
      table: The path of the table's file.
      config: The section of the config.
    """
    if is_remote(name):
        return name
    return file_io.join(posixpath.dirname(table) if config.folder is None else config.folder, name)


def fingerprint(table: Reader, paths: Iterable[str], config: ImagesConfig) -> str:
    """Return a digest of names, sizes and modification times of the images that tables name, in the order of the rows.

    It is computed in one pass over the tables, without opening an image.

    Args:
      table: Reads the column `path_column` of the tables.
      paths: The files of the tables.
      config: The section of the config.
    """
    digest = hashlib.sha256()
    count = total = 0
    for of_block in _image_paths(table, paths, config):
        for path, found in zip(of_block, file_io.stats(of_block), strict=True):
            count, total = count + 1, total + (found[0] if found else 0)
            digest.update(f"{path}\0{found}\n".encode(errors="surrogatepass"))
    return f"images:{count},image_bytes:{total},sha256:{digest.hexdigest()}"


def estimated_size(table: Reader, paths: Iterable[str], config: ImagesConfig) -> int:
    """Estimates the bytes of the images that tables name, from the sizes of some of them; as `fingerprint`."""
    sizes: list[int] = []
    count = 0
    for of_block in _image_paths(table, paths, config):
        count += len(of_block)
        if len(sizes) < _SAMPLE:
            sizes += [found[0] for found in file_io.stats(of_block[: _SAMPLE - len(sizes)]) if found]
    return sum(sizes) * count // len(sizes) if sizes else 0


def _image_paths(table: Reader, paths: Iterable[str], config: ImagesConfig) -> Iterator[list[str]]:
    """Yield the paths of the images, a block of rows at a time; rows without one have none here."""
    log = RowLog(None)
    for path in paths:
        for file_range in table.ranges(path, None):
            for block in table.read(file_range, log):
                names = _names(block, str(config.path_column))
                yield [resolve(name, path, config) for name in names if name]


def _names(block: Block, column: str) -> list[str | None]:
    """Return the names of the files; what is not UTF-8 becomes U+FFFD, which leads to no file."""
    values = block.columns.column(block.columns.schema.get_field_index(column)).to_pylist()
    return [_name(value) for value in values]


def _name(value: object) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
