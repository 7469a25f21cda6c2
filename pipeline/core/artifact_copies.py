"""Artifacts in an object store that TensorFlow and Beam cannot open, and their copies in a folder on this machine.

Nodes read and write the copies only. `NodeLauncher` downloads a node's missing inputs before it runs the node, and
uploads its outputs before it registers them, so ML Metadata never names an incomplete artifact. ML Metadata contains
the URLs (`connection.RelocatedStore`), so that other machines find the artifacts. Whether an artifact exists is decided
by the object store, because other machines cannot read a copy. Verbs that only read, such as `runs`, open the URLs.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from components.base import object_store

_EMPTY = "/.empty"
"""Name of an object that stands for an artifact without files, such as a PushedModel if nothing was pushed."""


@dataclass(frozen=True)
class ArtifactCopies:
    """The folder with the copies, and the URL of the artifacts.

    Attributes:
      folder: Absolute path of TFX's pipeline root on this machine.
      url: URL of the same folder in the object store.
    """

    folder: str
    url: str

    def to_url(self, text: str) -> str:
        """Return the URL for a path in the folder; other texts are returned unchanged."""
        return self.url + text.removeprefix(self.folder) if text.startswith(f"{self.folder}/") else text

    def to_path(self, text: str) -> str:
        """Return the path of the copy for a URL of an artifact; other texts are returned unchanged."""
        return self.folder + text.removeprefix(self.url) if text.startswith(f"{self.url}/") else text

    def upload(self, path: str) -> None:
        """Copy an artifact to the object store.

        Args:
          path: Path of the artifact's folder or, for a value, of its file.

        Raises:
          InputError: Credentials are missing, or the bucket does not exist.
          MachineError: The object store does not answer.
        """
        url = self.to_url(path)
        files = [str(file) for file in (Path(path), *sorted(Path(path).rglob("*"))) if file.is_file()]
        with object_store.errors(url):
            file_system = object_store.file_system(url)
            if files:
                file_system.put(files, [url + file.removeprefix(path) for file in files])
            else:
                file_system.pipe_file(url + _EMPTY, b"")

    def exists(self, path: str) -> bool:
        """Return whether the object store has an artifact.

        Args:
          path: Path of its copy, which may be missing.

        Raises:
          InputError: Credentials are missing, or the bucket does not exist.
          MachineError: The object store does not answer.
        """
        url = self.to_url(path)
        if url == path:
            return Path(path).exists()
        with object_store.errors(url):
            return bool(object_store.list_names(url))

    def download(self, path: str) -> None:
        """Copy an artifact from the object store, unless the folder has it.

        Args:
          path: Path that the copy has or gets.

        Raises:
          InputError: Credentials are missing, or the bucket does not exist.
          MachineError: The object store does not answer.
        """
        target, url = Path(path), self.to_url(path)
        if url == path or target.exists():
            return
        # Another node may download the same artifact at the same time, and this process may be killed.
        scratch = target.parent / f".{uuid.uuid4().hex}"
        copy = scratch / target.name
        try:
            with object_store.errors(url):
                file_system = object_store.file_system(url)
                # The only name of a value, which is a file, is empty.
                names = [name for name in object_store.list_names(url) if name != _EMPTY]
                (copy.parent if "" in names else copy).mkdir(parents=True)
                for name in names:
                    Path(f"{copy}{name}").parent.mkdir(parents=True, exist_ok=True)
                file_system.get([url + name for name in names], [f"{copy}{name}" for name in names])
            if not target.exists():
                copy.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def remove(self, path: str) -> None:
        """Remove an artifact from the object store.

        Args:
          path: Path of its copy.
        """
        url = self.to_url(path)
        with object_store.errors(url):
            for name in object_store.list_names(url):
                object_store.file_system(url).rm_file(url + name)
