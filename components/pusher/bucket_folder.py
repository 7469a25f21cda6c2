"""A push folder in Google Cloud Storage, whose state changes by compare-and-swap on the generation of registry.json.

Cloud Storage does not support locks or atomic renames. It does replace an object atomically, and on request only if the
object still has a given generation. A change therefore reads registry.json with its generation, computes the new state,
and writes it on condition of this generation. If another process was faster, the write fails (412), and the change
starts again. This module imports Google's client, but not TFX.

The rollout's files are separate objects, which are written after registry.json, models.config first. A model server
that polls in between reads files of an earlier state, or a mixture of both states. This is harmless for three reasons.
A server reads a single file, and every file is complete. All versions in these files still exist, because a version is
removed only after the files are written. If a proxy's file is older than the servers' file, the servers still know the
labels in it.

A file never returns to an earlier state. Its generation is listed before registry.json is read, and it is written on
condition of this generation. If another process writes the file after the listing, the condition fails, and everything
is read again. If another process wrote the file before the listing, its state is not newer than the state that is read
afterwards. A process that is killed leaves files of an earlier state, which the next change, or a repetition of the
same command, replaces. A file is not written if its content is already correct, so concurrent processes terminate.
"""

from __future__ import annotations

import base64
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import google_crc32c

from components.base import google_cloud
from components.pusher import rollout, serving_state
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.results.version_manifest import Provenance, is_version

_MODEL = "saved_model.pb"


def open_folder(url: str) -> Store:
    """Open a push folder by its gs:// URL, without reading anything."""
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
                # The change is already stored. If the response to a write is lost, the client repeats the write, and
                # the condition of the repetition fails because the first attempt created a new generation.
                break
            new = update(now)
            if new == now:
                break
            try:
                self._write(serving_state.NAME, serving_state.to_json(new), generation)
                break
            except google_cloud.exceptions().PreconditionFailed:
                # Without a new entry in the history, the check above cannot recognise the change.
                if len(new.history) == len(now.history):
                    new = None
        self._write_rollout()
        return new

    def versions(self) -> list[int]:
        return [number for number, is_complete in self._list_numbers().items() if is_complete]

    def leftovers(self) -> list[int]:
        return [number for number, is_complete in self._list_numbers().items() if not is_complete]

    def version(self, number: int) -> GcsFolder:
        return GcsFolder(self._bucket, f"{self._prefix}{number}")

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        # Imported here because it imports TFX: nodes copy files with TFX's fileio, and other commands do not need it.
        from components.pusher import remote_folder

        return remote_folder.add_version(model, self._url, number, provenance)

    def remove(self, number: int) -> None:
        # Delete saved_model.pb first: model servers do not load a version without it.
        blobs = sorted(self._list(f"{number}/"), key=lambda blob: not blob.name.endswith(f"/{number}/{_MODEL}"))
        for blob in blobs:
            self._delete(blob, None)

    @functools.cached_property
    def _bucket(self) -> Any:
        with google_cloud.errors(self._url):
            return google_cloud.storage_client().bucket(self._bucket_name)

    def _read(self) -> tuple[State, int]:
        """Return the state, and the generation of its object, which is 0 if the object does not exist."""
        where, blob = f"{self._url}/{serving_state.NAME}", self._bucket.blob(f"{self._prefix}{serving_state.NAME}")
        with google_cloud.errors(where):
            try:
                # The client sets `blob.generation` from the same response, so it belongs to this content.
                content = blob.download_as_bytes()
            except google_cloud.exceptions().NotFound:
                return State(), 0
        return serving_state.parse(content, where), int(blob.generation)

    def _write(self, name: str, content: str, generation: int) -> None:
        blob = self._bucket.blob(f"{self._prefix}{name}")
        # Objects in a publicly readable bucket are cached for an hour by default.
        blob.cache_control = "no-store"
        with google_cloud.errors(f"{self._url}/{name}"):
            blob.upload_from_string(content, if_generation_match=generation)

    def _write_rollout(self) -> None:
        start = f"{rollout.FOLDER}/"
        while True:
            # List the generations before reading the state; see the module's docstring.
            before = {blob.name.removeprefix(self._prefix): blob for blob in self._list(start)}
            files = rollout.files(self._url, self.read(), self.versions())
            content = {f"{start}{name}": text for name, text in files.items()}
            old = [name for name in before if name.startswith(f"{start}{rollout.VERSIONS}/") and name not in content]
            try:
                for name, text in content.items():
                    blob = before.get(name)
                    if blob is None or blob.crc32c != _compute_checksum(text):
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
                # Another process deleted the object.
                return

    def _list(self, start: str) -> list[Any]:
        with google_cloud.errors(self._url):
            return list(self._bucket.list_blobs(prefix=f"{self._prefix}{start}"))

    def _list_numbers(self) -> dict[int, bool]:
        """List all versions, including incomplete versions.

        Returns:
          Number of a version → whether it is complete, that is, contains the file that a push writes last. The numbers
          are in ascending order.
        """
        numbers: dict[int, bool] = {}
        for blob in self._list(""):
            name, _, inside = blob.name.removeprefix(self._prefix).partition("/")
            if is_version(name):
                numbers[int(name)] = numbers.get(int(name), False) or inside == _MODEL
        return dict(sorted(numbers.items()))


class GcsFolder:
    """A version's folder in Cloud Storage. It implements `version_manifest.Folder`."""

    def __init__(self, bucket: Any, path: str) -> None:
        self._bucket, self._path = bucket, path
        self.name = path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"gs://{self._bucket.name}/{self._path}"

    def files(self) -> Iterator[str]:
        """Yield the relative paths of all files; skip objects that represent folders, whose names end with a slash."""
        start = f"{self._path}/"
        with google_cloud.errors(str(self)):
            for blob in self._bucket.list_blobs(prefix=start):
                if not blob.name.endswith("/"):
                    yield blob.name.removeprefix(start)

    def open(self, path: str) -> BinaryIO:
        """Download a file to a temporary copy and open the copy; the client verifies the checksum.

        Raises:
          FileNotFoundError: If the file does not exist.
        """
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        with google_cloud.errors(f"{self}/{path}"):
            try:
                self._bucket.blob(f"{self._path}/{path}").download_to_file(file)
            except google_cloud.exceptions().NotFound as error:
                file.close()
                raise FileNotFoundError(f"{self}/{path}") from error
        file.seek(0)
        return file


def _compute_checksum(text: str) -> str:
    """Return the CRC32C in the format of Cloud Storage's listings."""
    return base64.b64encode(google_crc32c.value(text.encode()).to_bytes(4, "big")).decode()
