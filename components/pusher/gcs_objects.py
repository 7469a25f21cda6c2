"""Objects in Google Cloud Storage, through Google's client. An object's tag is its generation."""

from __future__ import annotations

import functools
import tempfile
from typing import Any, BinaryIO, cast

from components.base import google_cloud
from components.base.object_store import BLOCK
from components.pusher.bucket_objects import ObjectChangedError, Objects


def open_objects(url: str) -> Objects:
    """Return the objects below a gs:// URL, without reading anything."""
    return _GcsObjects(url)


class _GcsObjects:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._bucket_name, _, path = self.url.removeprefix("gs://").partition("/")
        self._prefix = f"{path}/" if path else ""

    def list_names(self, prefix: str) -> list[str]:
        with google_cloud.errors(self.url):
            names = [blob.name for blob in self._bucket.list_blobs(prefix=f"{self._prefix}{prefix}")]
        # Objects that represent folders have names that end with a slash.
        return [name.removeprefix(self._prefix) for name in names if not name.endswith("/")]

    def read(self, name: str) -> tuple[bytes, str]:
        blob = self._blob(name)
        with google_cloud.errors(f"{self.url}/{name}"):
            try:
                # The client sets `blob.generation` from the same response, so it belongs to this content.
                content = blob.download_as_bytes()
            except google_cloud.exceptions().NotFound as error:
                raise FileNotFoundError(f"{self.url}/{name}") from error
        return content, str(blob.generation)

    def write(self, name: str, content: bytes, tag: str | None) -> None:
        blob = self._blob(name)
        # Objects in a publicly readable bucket are cached for an hour by default.
        blob.cache_control = "no-store"
        with google_cloud.errors(f"{self.url}/{name}"):
            try:
                blob.upload_from_string(content, if_generation_match=int(tag or 0))
            except google_cloud.exceptions().PreconditionFailed as error:
                raise ObjectChangedError(f"{self.url}/{name}") from error

    def upload(self, name: str, source: BinaryIO) -> None:
        with google_cloud.errors(f"{self.url}/{name}"):
            # In parts, which bounds the memory. Readers see the object when all parts are there.
            self._bucket.blob(f"{self._prefix}{name}", chunk_size=BLOCK).upload_from_file(source)

    def open(self, name: str) -> BinaryIO:
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        with google_cloud.errors(f"{self.url}/{name}"):
            try:
                # The client verifies the checksum.
                self._blob(name).download_to_file(file)
            except google_cloud.exceptions().NotFound as error:
                file.close()
                raise FileNotFoundError(f"{self.url}/{name}") from error
        file.seek(0)
        return file

    def delete(self, name: str) -> None:
        with google_cloud.errors(f"{self.url}/{name}"):
            try:
                self._blob(name).delete()
            except google_cloud.exceptions().NotFound:
                # Another process deleted the object.
                return

    def _blob(self, name: str) -> Any:
        return self._bucket.blob(f"{self._prefix}{name}")

    @functools.cached_property
    def _bucket(self) -> Any:
        with google_cloud.errors(self.url):
            return google_cloud.storage_client().bucket(self._bucket_name)
