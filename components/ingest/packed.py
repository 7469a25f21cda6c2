"""Opens files that may be compressed: gzip and zstd are known by their first bytes, whatever a file is called."""

from __future__ import annotations

import io
from typing import IO, Any

from components.errors import InputError
from components.ingest import source

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_unpacked(path: str) -> IO[bytes]:
    """Opens a local or remote file to read its content.

    Reading raises InputError where the compressed data is damaged or cut off.
    """
    file = source.open_binary(path)
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(_GZIP):
        return io.BufferedReader(_Unpacked(path, file, _gunzip(file)), 1 << 20)
    if magic == _ZSTD:
        import pyarrow as pa

        return io.BufferedReader(_Unpacked(path, file, pa.CompressedInputStream(file, "zstd")), 1 << 20)
    return file


def _gunzip(file: IO[bytes]) -> Any:
    # Two to three times as fast as the standard library; imported here, since most runs do without.
    from isal import igzip

    opened: Any = igzip.IGzipFile
    return opened(fileobj=file)


def is_packed(path: str) -> bool:
    """Whether a file is compressed, so that it cannot be entered in the middle."""
    with source.open_binary(path) as file:
        magic = file.read(4)
    return magic.startswith(_GZIP) or magic == _ZSTD


class _Unpacked(io.RawIOBase):
    """A decompressing stream, whose errors name the file."""

    def __init__(self, path: str, file: IO[bytes], stream: Any) -> None:
        self._path, self._file, self._stream = path, file, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, EOFError, ValueError) as error:
            raise self._damaged(str(error)) from error
        except Exception as error:
            # isal and zlib have error types of their own, which come from no common class.
            if type(error).__module__.partition(".")[0] not in ("isal", "zlib"):
                raise
            raise self._damaged(str(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()

    def _damaged(self, why: str) -> InputError:
        return InputError(
            f"{self._path}: the compressed data is damaged or cut off: {why}", "fetch or write the file again"
        )
