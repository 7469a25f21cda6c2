"""Push folders of every kind with the same content, for tests of behaviour that does not depend on the kind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from components.base import google_cloud, object_store
from tests.support.fakes import fake_gcs
from tests.support.runs import pushed
from tests.support.servers import object_stores

KINDS = ("local", "gs")
REAL = (
    object_stores.SLOW_MOTO,
    *(server for server in object_stores.OTHERS if server is not object_stores.SEAWEEDFS),
)
"""Kinds on real servers, as parameters of slow tests; without SeaweedFS, whose first write takes 16 seconds."""


class Files(Protocol):
    """A push folder, with access to its files by relative path."""

    path: str

    def push(self, number: int) -> None:
        """Add a version."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def write(self, name: str, content: bytes) -> None:
        """Replace a file."""

    def delete(self, name: str) -> None:
        """Delete a file."""

    def names(self) -> set[str]:
        """Return all files except hidden files."""


@contextlib.contextmanager
def push_folder(kind: str, folder: Path) -> Iterator[Files]:
    """Yield an empty push folder; the environment of this process is set so that clients find it.

    Args:
      kind: one of KINDS, or the name of a server of `object_stores`.
      folder: Local folder for files.
    """
    if kind == "local":
        (folder / "pushed").mkdir()
        yield Local(folder / "pushed")
        return
    if kind != "gs":
        with object_stores.serve(kind, folder) as store:
            yield Served(store, folder)
        return
    bucket = fake_gcs.Bucket()
    with fake_gcs.emulate(bucket) as environment, mock.patch.dict(os.environ, environment):
        yield Remote(bucket, folder, environment)


class Local:
    """A push folder on the local disk."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self._folder = folder

    def push(self, number: int) -> None:
        pushed.push(self._folder, number)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        (self._folder / name).write_bytes(content)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink()

    def names(self) -> set[str]:
        files = [file for file in self._folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
        return {str(file.relative_to(self._folder)) for file in files}


class Remote:
    """A push folder in a bucket of the fake Cloud Storage.

    Attributes:
      bucket: The bucket with its objects.
      environment: Environment variables with which processes find the bucket.
    """

    def __init__(self, bucket: fake_gcs.Bucket, folder: Path, environment: Mapping[str, str]) -> None:
        self.path, self.bucket, self.environment = "gs://bucket/models/taxi", bucket, environment
        self._folder = folder / "versions"

    def push(self, number: int) -> None:
        version = pushed.push(self._folder, number)
        for file in sorted(version.rglob("*")):
            if file.is_file():
                self.write(f"{number}/{file.relative_to(version)}", file.read_bytes())

    def read(self, name: str) -> bytes:
        return self.bucket.objects[f"models/taxi/{name}"]

    def write(self, name: str, content: bytes) -> None:
        self.bucket.store(f"models/taxi/{name}", content)

    def delete(self, name: str) -> None:
        self.bucket.delete(f"models/taxi/{name}")

    def names(self) -> set[str]:
        return {name.removeprefix("models/taxi/") for name in self.bucket.objects}


class Served:
    """A push folder in a bucket of a real server, read and written without the code of the project.

    Attributes:
      store: The server.
    """

    def __init__(self, store: object_stores.ObjectStore, folder: Path) -> None:
        self.path, self.store = f"{store.url}/models/taxi", store
        self._folder = folder / "versions"

    def push(self, number: int) -> None:
        version = pushed.push(self._folder, number)
        for file in sorted(version.rglob("*")):
            if file.is_file():
                self.write(f"{number}/{file.relative_to(version)}", file.read_bytes())

    def read(self, name: str) -> bytes:
        if self.path.startswith("gs://"):
            return bytes(self._blob(name).download_as_bytes())
        return bytes(object_store.file_system(self.path).cat_file(f"{self.path}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        if self.path.startswith("gs://"):
            self._blob(name).upload_from_string(content)
        else:
            object_store.file_system(self.path).pipe_file(f"{self.path}/{name}", content)

    def delete(self, name: str) -> None:
        if self.path.startswith("gs://"):
            self._blob(name).delete()
        else:
            object_store.file_system(self.path).rm_file(f"{self.path}/{name}")

    def names(self) -> set[str]:
        return self.store.names("models/taxi/")

    def _blob(self, name: str) -> Any:
        return google_cloud.storage_client().bucket("rides").blob(f"models/taxi/{name}")
