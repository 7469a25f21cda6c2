"""Open files that may be compressed. gzip and zstd are recognized by their first bytes, not by the file's name."""

from __future__ import annotations

import io
import zlib
from typing import IO, Any

from components.base.errors import InputError
from components.data import file_io

GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def open_decompressed(path: str) -> IO[bytes]:
    """Open a local or remote file to read its content, decompressed if it is a gzip or zstd file.

    Reading raises InputError if the compressed data is damaged or truncated.
    """
    file = file_io.open_binary(path)
    magic = file.read(4)
    file.seek(0)
    return decompress(path, file) if _is_magic(magic) else file


def decompress(path: str, file: IO[bytes]) -> IO[bytes]:
    """Return the content of a gzip or zstd file that is open at its start; see `open_decompressed`."""
    magic = file.read(4)
    file.seek(0)
    # isal is two to three times as fast as the standard library. Import it late, because most runs do not need it.
    if magic.startswith(GZIP_MAGIC):
        from isal import igzip

        open_gzip: Any = igzip.IGzipFile
        return io.BufferedReader(_Decompressed(path, file, open_gzip(fileobj=file)), 1 << 20)
    import pyarrow as pa

    return io.BufferedReader(_Decompressed(path, file, pa.CompressedInputStream(file, "zstd")), 1 << 20)


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed, so that it can only be read from its start."""
    with file_io.open_binary(path) as file:
        return _is_magic(file.read(4))


def _is_magic(first: bytes) -> bool:
    return first.startswith((GZIP_MAGIC, _ZSTD_MAGIC))


class _Decompressed(io.RawIOBase):
    """A decompressing stream whose errors name the file."""

    def __init__(self, path: str, file: IO[bytes], stream: Any) -> None:
        self._path, self._file, self._stream = path, file, stream
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, EOFError, ValueError, zlib.error, _isal_error()) as error:
            raise InputError(
                f"{self._path}: the compressed data is damaged or cut off after byte {self._offset} of its content: "
                f"{error}",
                "fetch or write the file again",
            ) from error
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


def _isal_error() -> Any:
    from isal import isal_zlib

    # Any, because the package's stubs declare the class as an instance.
    return isal_zlib.error
