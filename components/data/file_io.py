"""Open, measure and remove files by path or URL.

s3:// and az:// go through fsspec (`object_files`), other URLs through TFX's file system.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from components.base.files import is_remote, open_regular
from components.base.object_store import is_object_store
from components.data.object_files import ObjectFiles

_REQUESTS = 32
"""Maximum number of concurrent requests for remote files."""


def size(path: str) -> int:
    """Return the size of a file in bytes."""
    if not is_remote(path):
        return os.stat(path).st_size  # noqa: PTH116 - the path may be a URL
    with open_binary(path) as file:
        return file.seek(0, io.SEEK_END)


def open_binary(path: str) -> IO[bytes]:
    """Open a local or remote file for reading.

    Raises:
      OSError: If the file does not exist or cannot be read.
      InputError: If the path is a folder, a FIFO or a device.
    """
    if not is_remote(path):
        return open_regular(path)
    return io.BufferedReader(_GFileReader(file_system(path).open(path, "rb")), 1 << 20)


def read(path: str) -> bytes | None:
    """Return the content of a local or remote file; None if it does not exist."""
    try:
        with missing_as_file_not_found(), open_binary(path) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def create(path: str) -> IO[bytes]:
    """Create a local or remote file for writing."""
    if not is_remote(path):
        return open(path, "wb")  # noqa: PTH123 - as in size
    return io.BufferedWriter(_GFileWriter(file_system(path).open(path, "wb")), 1 << 20)


def stat(path: str) -> tuple[int, int]:
    """Return size in bytes and modification time in nanoseconds since 1970 of a local or remote file.

    Raises:
      FileNotFoundError: If the file does not exist.
    """
    if is_remote(path):
        with missing_as_file_not_found():
            remote = file_system(path).stat(path)
            return int(remote.length), int(remote.mtime_nsec)
    local = os.stat(path)  # noqa: PTH116 - as in size
    return local.st_size, local.st_mtime_ns


def stats(paths: Sequence[str]) -> list[tuple[int, int] | None]:
    """Call `stat` for all files, remote files in parallel; the result is None for a file that does not exist."""
    if not any(map(is_remote, paths)):
        return list(map(_stat_or_none, paths))
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(_stat_or_none, paths))


def _stat_or_none(path: str) -> tuple[int, int] | None:
    try:
        return stat(path)
    except (OSError, ValueError):
        # The file is missing, or the name is not valid for a file.
        return None


@contextlib.contextmanager
def missing_as_file_not_found() -> Iterator[None]:
    """Convert the errors of TensorFlow and TFX about missing remote files to FileNotFoundError."""
    try:
        yield
    except Exception as error:
        # Compare names, because importing the classes would import TensorFlow and TFX.
        if type(error).__name__ != "NotFoundError":
            raise
        raise FileNotFoundError(str(error)) from error


def join(folder: str, name: str) -> str:
    """Join a path or URL and a name."""
    return os.path.join(folder, name)  # noqa: PTH118 - pathlib changes URLs


class _GFileReader(io.RawIOBase):
    """Adapts a GFile of TensorFlow to the interface from which the standard library and pyarrow read."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _GFileWriter(io.RawIOBase):
    """Adapts a GFile of TensorFlow to the interface to which the standard library writes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _LocalFiles:
    """The functions of TFX's `fileio` that this package uses, for local paths, without importing TFX."""

    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)
    glob = staticmethod(glob.glob)
    walk = staticmethod(os.walk)


def file_system(path: str) -> Any:
    """Return an object with `exists`, `glob`, `isdir`, `listdir` and `walk`, and for URLs also `open` and `remove`."""
    if not is_remote(path):
        return _LocalFiles
    if is_object_store(path):
        return ObjectFiles
    from tfx.dsl.io import fileio

    return fileio


def list_files(folder: str) -> list[str]:
    """Return the sorted paths of all files below a local or remote folder; empty if the folder does not exist."""
    return sorted(join(parent, name) for parent, _, names in file_system(folder).walk(folder) for name in names)


def remove(path: str) -> None:
    """Delete a local or remote file."""
    if is_remote(path):
        file_system(path).remove(path)
    else:
        os.remove(path)  # noqa: PTH107 - as in size
