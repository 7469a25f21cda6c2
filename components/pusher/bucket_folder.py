"""A push folder in an object store, whose state changes by compare-and-swap on registry.json.

Object stores do not support locks or atomic renames. They do replace an object atomically, and on request only if it is
unchanged: `bucket_objects`. A change therefore reads registry.json with its tag, computes the new state, and writes it
on condition of this tag. If another process was faster, the write fails, and the change starts again.

A push first creates manifest.json on condition that it does not exist, which reserves the number of the version, and
writes saved_model.pb last. Model servers ignore a version until this file exists. A push that is killed leaves files of
an incomplete version, which a later push removes (`push.keep`). Two pushes never write into the same version.

The rollout's files are separate objects, which are written after registry.json, models.config first. A model server
that polls in between reads files of an earlier state, or a mixture of both states. This is harmless for three reasons.
A server reads a single file, and every file is complete. All versions in these files still exist, because a version is
removed only after the files are written. If a proxy's file is older than the servers' file, the servers still know the
labels in it.

A file does not stay in an earlier state. Its content and tag are read before registry.json is read, and it is written
on condition of this tag. If another process writes the file in between, the condition fails, and everything is read
again. S3's tags are digests, so a file that another process has changed to and fro has its old tag. Therefore the files
are read again after they were written, until there is nothing to write. A process that is killed leaves files of an
earlier state, which the next change, or a repetition of the same command, replaces.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from components.base.files import is_remote
from components.pusher import rollout, serving_state
from components.pusher.bucket_objects import ObjectChangedError, Objects
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.results import version_manifest
from components.results.version_manifest import Folder, LocalFolder, Provenance, is_version

_MODEL = "saved_model.pb"


def open_folder(objects: Objects) -> Store:
    """Return the push folder that consists of these objects, without reading anything."""
    return _BucketStore(objects)


class _BucketStore:
    has_stages = True

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self) -> State:
        return self._read()[0]

    def change(self, update: Update) -> State:
        new: State | None = None
        while True:
            now, tag = self._read()
            if new is not None and new.history and now.history[: len(new.history)] == new.history:
                # The change is already stored. If the response to a write is lost, the client repeats the write, and
                # the condition of the repetition fails because the first attempt created a new tag.
                break
            new = update(now)
            if new == now:
                break
            try:
                self._objects.write(serving_state.NAME, serving_state.to_json(new).encode(), tag)
                break
            except ObjectChangedError:
                # Without a new entry in the history, the check above cannot recognise the change.
                if len(new.history) == len(now.history):
                    new = None
        self._write_rollout()
        return new

    def versions(self) -> list[int]:
        return [number for number, is_complete in self._list_numbers().items() if is_complete]

    def leftovers(self) -> list[int]:
        return [number for number, is_complete in self._list_numbers().items() if not is_complete]

    def version(self, number: int) -> Folder:
        return _BucketFolder(self._objects, number)

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        source = _open_model(model)
        files = version_manifest.describe(source)
        number = max([number, *(existing_number + 1 for existing_number in self._list_numbers())])
        while not self._reserve(number, files, provenance):
            number += 1
        for path in sorted(files, key=lambda path: (path == _MODEL, path)):
            with source.open(path) as file:
                self._objects.upload(f"{number}/{path}", file)
        return f"{self._objects.url}/{number}", number

    def remove(self, number: int) -> None:
        # Delete saved_model.pb first: model servers do not load a version without it.
        for name in sorted(self._objects.list_names(f"{number}/"), key=lambda name: name != f"{number}/{_MODEL}"):
            self._objects.delete(name)

    def _read(self) -> tuple[State, str | None]:
        """Return the state, and the tag of its object, which is None if the object does not exist."""
        try:
            content, tag = self._objects.read(serving_state.NAME)
        except FileNotFoundError:
            return State(), None
        return serving_state.parse(content, f"{self._objects.url}/{serving_state.NAME}"), tag

    def _reserve(self, number: int, files: Mapping[str, version_manifest.File], provenance: Provenance) -> bool:
        """Create the manifest of a version; return whether this push owns the number."""
        manifest = version_manifest.manifest(files, provenance.model_copy(update={"version": number}))
        name, content = f"{number}/{version_manifest.NAME}", version_manifest.to_json(manifest)
        try:
            self._objects.write(name, content, None)
        except ObjectChangedError:
            # If the response to the write is lost, the client repeats it, and finds the file of its first attempt.
            return self._read_if_exists(name) == content
        return True

    def _read_if_exists(self, name: str) -> bytes | None:
        try:
            return self._objects.read(name)[0]
        except FileNotFoundError:
            return None

    def _write_rollout(self) -> None:
        start = f"{rollout.FOLDER}/"
        while True:
            # Read the files before the state; see the module's docstring.
            before = dict(self._read_existing(start))
            state, versions = self.read(), self.versions()
            files = rollout.files(self._objects.url, state, versions)
            models = f"{start}{rollout.MODELS}"
            if models in before:
                text, read_version = before[models]
                if announcement := rollout.announce(text.decode(), self._objects.url, state, versions):
                    with contextlib.suppress(ObjectChangedError):
                        self._objects.write(models, announcement.text.encode(), read_version)
                        announcement.wait()
                    continue
            content = {f"{start}{name}": text.encode() for name, text in files.items()}
            changed = [name for name, text in content.items() if name not in before or before[name][0] != text]
            old = [name for name in before if name.startswith(f"{start}{rollout.VERSIONS}/") and name not in content]
            if not changed and not old:
                return
            try:
                for name in changed:
                    self._objects.write(name, content[name], before[name][1] if name in before else None)
            except ObjectChangedError:
                continue
            for name in old:
                self._objects.delete(name)

    def _read_existing(self, start: str) -> Iterator[tuple[str, tuple[bytes, str]]]:
        for name in self._objects.list_names(start):
            try:
                yield name, self._objects.read(name)
            except FileNotFoundError:
                # Another process deleted the file.
                continue

    def _list_numbers(self) -> dict[int, bool]:
        """List all versions, including incomplete versions.

        Returns:
          Number of a version → whether it is complete, that is, contains the file that a push writes last. The numbers
          are in ascending order.
        """
        numbers: dict[int, bool] = {}
        for path in self._objects.list_names(""):
            name, _, inside = path.partition("/")
            if is_version(name):
                numbers[int(name)] = numbers.get(int(name), False) or inside == _MODEL
        return dict(sorted(numbers.items()))


class _BucketFolder:
    """A version's folder. It implements `version_manifest.Folder`."""

    def __init__(self, objects: Objects, number: int) -> None:
        self._objects = objects
        self.name = str(number)

    def __str__(self) -> str:
        return f"{self._objects.url}/{self.name}"

    def files(self) -> Iterator[str]:
        """Yield the relative paths of all files."""
        for path in self._objects.list_names(f"{self.name}/"):
            yield path.removeprefix(f"{self.name}/")

    def open(self, path: str) -> BinaryIO:
        """Download a file and open the copy.

        Raises:
          FileNotFoundError: If the file does not exist.
        """
        return self._objects.open(f"{self.name}/{path}")


def _open_model(model: str) -> Folder:
    if not is_remote(model):
        return LocalFolder(model)
    # Imported here because it imports TFX: nodes read artifacts with TFX's fileio, and other commands do not need it.
    from components.pusher.remote_folder import FileioFolder

    return FileioFolder(model)
