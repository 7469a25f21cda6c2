"""TFX's file system interface for s3:// and az://, on fsspec.

`components.data.file_io` uses it without TFX. `register` makes TFX's own code use it, too; TensorFlow and Beam do not
know these schemes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from components.base import object_store


@dataclass(frozen=True)
class Stat:
    """Properties of an object, named as TensorFlow names them.

    Attributes:
      length: Size in bytes.
      mtime_nsec: Time of the last write in nanoseconds since 1970. The stores return whole seconds; the rest is taken
        from the ETag, so that a second write within the same second changes the value.
    """

    length: int
    mtime_nsec: int


class ObjectFiles:
    """The functions of TFX's class `Filesystem`. Paths and results are URLs; a folder is a prefix of names."""

    SUPPORTED_SCHEMES = tuple(f"{scheme}://" for scheme in object_store.SCHEMES)

    @staticmethod
    def open(path: str, mode: str = "r") -> Any:
        """Open an object. If `mode` writes, readers see the object when the file is closed."""
        text = {} if "b" in mode else {"encoding": "utf-8"}
        with object_store.errors(path, is_optional="r" in mode):
            return object_store.file_system(path).open(path, mode, block_size=object_store.BLOCK, **text)

    @staticmethod
    def exists(path: str) -> bool:
        """Return whether an object or a folder exists."""
        with object_store.errors(path, is_optional=True):
            return bool(object_store.file_system(path).exists(path))

    @staticmethod
    def isdir(path: str) -> bool:
        """Return whether objects exist below a path."""
        with object_store.errors(path, is_optional=True):
            return bool(object_store.file_system(path).isdir(path))

    @staticmethod
    def glob(pattern: str) -> list[str]:
        """Return the URLs that match a pattern, in which `*` does not match `/`."""
        with object_store.errors(pattern, is_optional=True):
            return [_to_url(pattern, path) for path in object_store.file_system(pattern).glob(pattern)]

    @staticmethod
    def listdir(path: str) -> list[str]:
        """Return the names in a folder."""
        with object_store.errors(path, is_optional=True):
            entries = object_store.file_system(path).ls(path, detail=False)
        names = (entry.rstrip("/").rpartition("/")[2] for entry in entries)
        # Some programs mark a folder by an empty object with the name of the folder.
        return [name for name in names if name and name != path.rstrip("/").rpartition("/")[2]]

    @staticmethod
    def stat(path: str) -> Stat:
        """Return size and time of an object.

        Raises:
          FileNotFoundError: The object does not exist.
        """
        with object_store.errors(path, is_optional=True):
            entry = object_store.file_system(path).info(path)
        written = entry.get("LastModified") or entry.get("last_modified")
        etag = str(entry.get("ETag") or entry.get("etag"))
        seconds = int(written.timestamp()) if written else 0
        return Stat(int(entry["size"] or 0), seconds * 10**9 + zlib.crc32(etag.encode()) % 10**9)

    @staticmethod
    def walk(path: str, topdown: bool = True, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield the URL of each folder, with the names of its folders and files; `onerror` is passed to fsspec."""
        for folder, folders, names in object_store.file_system(path).walk(
            path, topdown=topdown, on_error=onerror or "omit"
        ):
            yield _to_url(path, folder), list(folders), [name for name in names if name]

    @staticmethod
    def makedirs(path: str) -> None:
        """Do nothing: a folder exists as long as there are objects in it."""

    mkdir = makedirs

    @staticmethod
    def copy(source: str, target: str, overwrite: bool = False) -> None:
        """Copy an object within the store.

        Raises:
          FileExistsError: The target exists, and `overwrite` is False.
        """
        if not overwrite and ObjectFiles.exists(target):
            raise FileExistsError(target)
        with object_store.errors(source, is_optional=True):
            object_store.file_system(source).cp_file(source, target)

    @staticmethod
    def rename(source: str, target: str, overwrite: bool = False) -> None:
        """Copy an object and delete the original. Readers may see both in between."""
        ObjectFiles.copy(source, target, overwrite)
        ObjectFiles.remove(source)

    @staticmethod
    def remove(path: str) -> None:
        """Delete an object."""
        with object_store.errors(path, is_optional=True):
            object_store.file_system(path).rm_file(path)

    @staticmethod
    def rmtree(path: str) -> None:
        """Delete all objects in a folder."""
        with object_store.errors(path, is_optional=True):
            file_system = object_store.file_system(path)
            for name in file_system.find(path):
                file_system.rm_file(name)


def register() -> None:
    """Make TFX's `fileio` open s3:// and az:// through this module."""
    # Imported here because it imports TFX.
    from components.compat.tfx import file_systems

    file_systems.register(ObjectFiles)


def _to_url(path: str, name: str) -> str:
    """Return the URL of a name that fsspec returned for a path. fsspec drops the scheme."""
    return f"{path.partition('://')[0]}://{name}"
