"""A push folder in Google Cloud Storage: its state changes by compare-and-swap on the generation of registry.json.

An object store has no lock and no rename, but replaces an object atomically, and only if it still has the generation
that the writer names. So a change reads registry.json with its generation, decides, and writes it for that generation;
if another process was faster (412), it reads and decides again. Imports Google's client, not TFX.

The rollout's files are written after registry.json, models.config first, and each of them is an object of its own. A
model server that polls between the two sees the files of an earlier state, or some of each. That is harmless: a server
reads one file; each file is complete; the versions that any of them names still exist, since a version is removed after
the files are written; and a proxy's file that is older than that of the servers names labels that they keep.

A file never goes back to an earlier state. Its generation is listed before registry.json is read, and it is written for
that generation. So if another process writes it after the listing, the write fails, and everything is read again; and
what another process wrote before the listing came from a state that is not later than the one read afterwards. A
process that is killed in between leaves files of an earlier state, which the next change, or the same command again,
replaces. A file that has its content already is not written, so processes that run beside each other come to an end.
"""

from __future__ import annotations

import base64
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import google_crc32c

from components import google_cloud
from components.pusher import rollout, serving_state
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.version_manifest import Provenance, is_version

_MODEL = "saved_model.pb"


def open_folder(url: str) -> Store:
    """Opens a push folder by its gs:// URL; nothing is read yet."""
    return _GcsStore(url)


class _GcsStore:
    has_stages = True

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        bucket, _, path = self._url.removeprefix("gs://").partition("/")
        self._bucket_name, self._prefix = bucket, f"{path}/" if path else ""

    def read(self) -> State:
        return self._read()[0]

    def change(self, update: Update) -> State:
        new: State | None = None
        while True:
            now, generation = self._read()
            if new is not None and new.history and now.history[: len(new.history)] == new.history:
                # The client repeats a request whose response was lost; the repetition then meets its own generation.
                break
            new = update(now)
            if new == now:
                break
            try:
                self._write(serving_state.NAME, serving_state.to_json(new), generation)
                break
            except google_cloud.exceptions().PreconditionFailed:
                if len(new.history) == len(now.history):
                    new = None
        self._write_rollout()
        return new

    def versions(self) -> list[int]:
        return [number for number, complete in self._numbers().items() if complete]

    def leftovers(self) -> list[int]:
        return [number for number, complete in self._numbers().items() if not complete]

    def version(self, number: int) -> GcsFolder:
        return GcsFolder(self._bucket, f"{self._prefix}{number}")

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        # Imported late: it imports TFX, whose nodes copy files with TensorFlow's client.
        from components.pusher import remote_folder

        return remote_folder.add_version(model, self._url, number, provenance)

    def remove(self, number: int) -> None:
        # Without saved_model.pb no server loads it.
        blobs = sorted(self._list(f"{number}/"), key=lambda blob: not blob.name.endswith(f"/{number}/{_MODEL}"))
        for blob in blobs:
            self._delete(blob, None)

    @functools.cached_property
    def _bucket(self) -> Any:
        with google_cloud.errors(self._url):
            return google_cloud.storage_client().bucket(self._bucket_name)

    def _read(self) -> tuple[State, int]:
        """The state and the generation of its object; 0: there is no object."""
        where, blob = f"{self._url}/{serving_state.NAME}", self._bucket.blob(f"{self._prefix}{serving_state.NAME}")
        with google_cloud.errors(where):
            try:
                # The response names the generation of what it contains.
                content = blob.download_as_bytes()
            except google_cloud.exceptions().NotFound:
                return State(), 0
        return serving_state.parse(content, where), int(blob.generation)

    def _write(self, name: str, content: str, generation: int) -> None:
        blob = self._bucket.blob(f"{self._prefix}{name}")
        # Otherwise a bucket that is readable for everyone has caches, which keep an old content for an hour.
        blob.cache_control = "no-store"
        with google_cloud.errors(f"{self._url}/{name}"):
            blob.upload_from_string(content, if_generation_match=generation)

    def _write_rollout(self) -> None:
        start = f"{rollout.FOLDER}/"
        while True:
            # In this order, see above.
            before = {blob.name.removeprefix(self._prefix): blob for blob in self._list(start)}
            files = rollout.files(self._url, self.read(), self.versions())
            content = {f"{start}{name}": text for name, text in files.items()}
            old = [name for name in before if name.startswith(f"{start}{rollout.VERSIONS}/") and name not in content]
            try:
                for name, text in content.items():
                    blob = before.get(name)
                    if blob is None or blob.crc32c != _checksum(text):
                        self._write(name, text, blob.generation if blob else 0)
                for name in old:
                    self._delete(before[name], before[name].generation)
                return
            except google_cloud.exceptions().PreconditionFailed:
                continue

    def _delete(self, blob: Any, generation: int | None) -> None:
        with google_cloud.errors(f"gs://{self._bucket_name}/{blob.name}"):
            try:
                blob.delete(if_generation_match=generation)
            except google_cloud.exceptions().NotFound:
                # Another process has deleted it.
                return

    def _list(self, start: str) -> list[Any]:
        with google_cloud.errors(self._url):
            return list(self._bucket.list_blobs(prefix=f"{self._prefix}{start}"))

    def _numbers(self) -> dict[int, bool]:
        """The numbers that have any file, in ascending order, and whether the last one of a push is there."""
        numbers: dict[int, bool] = {}
        for blob in self._list(""):
            name, _, inside = blob.name.removeprefix(self._prefix).partition("/")
            if is_version(name):
                numbers[int(name)] = numbers.get(int(name), False) or inside == _MODEL
        return dict(sorted(numbers.items()))


class GcsFolder:
    """A version's folder in Cloud Storage; a version_manifest.Folder."""

    def __init__(self, bucket: Any, path: str) -> None:
        self._bucket, self._path = bucket, path
        self.name = path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"gs://{self._bucket.name}/{self._path}"

    def files(self) -> Iterator[str]:
        """Yields the paths of all files below it; an object whose name ends with a slash represents a folder."""
        start = f"{self._path}/"
        with google_cloud.errors(str(self)):
            for blob in self._bucket.list_blobs(prefix=start):
                if not blob.name.endswith("/"):
                    yield blob.name.removeprefix(start)

    def open(self, path: str) -> BinaryIO:
        """Opens one of these files for reading, as a temporary copy whose checksum the client has compared."""
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        with google_cloud.errors(f"{self}/{path}"):
            try:
                self._bucket.blob(f"{self._path}/{path}").download_to_file(file)
            except google_cloud.exceptions().NotFound as error:
                file.close()
                raise FileNotFoundError(f"{self}/{path}") from error
        file.seek(0)
        return file


def _checksum(text: str) -> str:
    """A CRC32C as Cloud Storage lists it."""
    return base64.b64encode(google_crc32c.value(text.encode()).to_bytes(4, "big")).decode()
