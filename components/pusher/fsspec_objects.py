"""Objects in S3 and Azure Blob Storage, through fsspec. An object's tag is its ETag.

fsspec does not know conditional writes, so the conditions go through the clients of its file systems: `If-Match` and
`If-None-Match` (RFC 9110, section 13.1), which S3 supports since November 2024.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from components.base import object_store
from components.pusher.bucket_objects import ObjectChangedError, Objects

_CONFLICTS = (409, 412)
"""HTTP codes of a failed condition. 409: S3 was changing the object, or in Azure it exists already."""


def open_objects(url: str) -> Objects:
    """Return the objects below an s3:// or az:// URL, without reading anything."""
    return _S3Objects(url) if url.startswith("s3://") else _AzureObjects(url)


class _FsspecObjects:
    """What S3 and Azure share."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._path = self.url.partition("://")[2]

    def list_names(self, prefix: str) -> list[str]:
        folder = prefix.rstrip("/")
        with object_store.errors(self.url):
            names = object_store.list_names(f"{self.url}/{folder}".rstrip("/"))
        return [f"{folder}{name}".lstrip("/") for name in names if name]

    def upload(self, name: str, source: BinaryIO) -> None:
        # In several parts if the object is large. Readers see it when all parts are there.
        with (
            object_store.errors(f"{self.url}/{name}"),
            self._files.open(f"{self._path}/{name}", "wb", block_size=object_store.BLOCK) as target,
        ):
            shutil.copyfileobj(source, target, object_store.BLOCK)

    def open(self, name: str) -> BinaryIO:
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        try:
            with (
                object_store.errors(f"{self.url}/{name}", is_optional=True),
                self._files.open(f"{self._path}/{name}", "rb", block_size=object_store.BLOCK) as source,
            ):
                shutil.copyfileobj(source, file, object_store.BLOCK)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), object_store.errors(f"{self.url}/{name}", is_optional=True):
            self._files.rm_file(f"{self._path}/{name}")

    @property
    def _files(self) -> Any:
        return object_store.file_system(self.url)


class _S3Objects(_FsspecObjects):
    def read(self, name: str) -> tuple[bytes, str]:
        while True:
            with object_store.errors(f"{self.url}/{name}", is_optional=True):
                # The file remembers the ETag of its opening, and each read fails if the object has another one by then.
                file = self._files.open(f"{self._path}/{name}", "rb")
                try:
                    return file.read(), str(file.details["ETag"])
                except OSError as error:
                    if type(error).__name__ != "FileExpired" and object_store.find_status(error) not in _CONFLICTS:
                        raise

    def write(self, name: str, content: bytes, tag: str | None) -> None:
        bucket, key, _ = self._files.split_path(f"{self._path}/{name}")
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with object_store.errors(f"{self.url}/{name}"), _conflicts(f"{self.url}/{name}", tag):
            self._files.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)


class _AzureObjects(_FsspecObjects):
    def read(self, name: str) -> tuple[bytes, str]:
        async def download() -> tuple[bytes, str]:
            async with self._blob(name) as blob:
                stream = await blob.download_blob()
                return await stream.readall(), str(stream.properties.etag)

        with object_store.errors(f"{self.url}/{name}", is_optional=True):
            return cast("tuple[bytes, str]", self._run(download))

    def write(self, name: str, content: bytes, tag: str | None) -> None:
        from azure.core import MatchConditions

        condition = {} if tag is None else {"etag": tag, "match_condition": MatchConditions.IfNotModified}

        async def upload() -> None:
            async with self._blob(name) as blob:
                await blob.upload_blob(content, overwrite=tag is not None, **condition)

        with object_store.errors(f"{self.url}/{name}"), _conflicts(f"{self.url}/{name}", tag):
            self._run(upload)

    def _blob(self, name: str) -> Any:
        container, blob, _ = self._files.split_path(f"{self._path}/{name}")
        return self._files.service_client.get_blob_client(container=container, blob=blob)

    def _run(self, act: Any) -> Any:
        from fsspec.asyn import sync

        # Azure's client works in the event loop in which fsspec has made it.
        return sync(self._files.loop, act)


@contextlib.contextmanager
def _conflicts(where: str, tag: str | None) -> Iterator[None]:
    """Convert errors about a failed condition to ObjectChangedError."""
    try:
        yield
    except Exception as error:
        code = object_store.find_status(error)
        # The object that should be replaced has been deleted.
        if code in _CONFLICTS or (code == 404 and tag is not None):
            raise ObjectChangedError(where) from error
        raise
