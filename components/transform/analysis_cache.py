"""A cache of the accumulators' states per file of examples, for later executions.

A run over several spans usually reads the same spans as the previous run, except for the oldest and the newest.
ExampleGen writes the rows of a span to separate files, which have the same content in every run. Therefore entries are
looked up by a digest of the file, and only files without an entry are analyzed.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx.dsl.io import fileio

from components.data import file_io

_PREFIX = "states-"
_BLOCK = 1 << 20
"""Bytes of a file to read at a time."""

States = Sequence[tuple[tuple[int, int], Any]]
"""Pairs of a key (number of the requirement, part) and the state of its accumulator. States with the same key are
merged."""


@dataclass(frozen=True)
class AnalysisCache:
    """The entries of this execution and of earlier ones.

    Attributes:
      folder: Folder of this execution. In the end it contains the entries of all files, including entries of earlier
        executions.
      earlier: Name of an entry → path in the folder of an earlier execution.
      dependency: Text that describes what the states depend on, apart from the content of the file.
    """

    folder: str
    earlier: Mapping[str, str]
    dependency: str

    @classmethod
    def open(cls, folder: str, dependency: str) -> AnalysisCache:
        """Open the cache with the entries of the sibling folders, one per execution of the node."""
        fileio.makedirs(folder)
        paths = sorted(fileio.glob(file_io.join(folder.rstrip("/").rpartition("/")[0], f"*/{_PREFIX}*")))
        return cls(folder, {path.rpartition("/")[2]: path for path in paths}, dependency)

    def name(self, path: str) -> str:
        """Return the name of the entry of a file of examples."""
        digest = hashlib.blake2b(self.dependency.encode(), digest_size=16)
        with file_io.open_binary(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return _PREFIX + digest.hexdigest()

    def load(self, name: str) -> States | None:
        """Return an entry of an earlier execution, and copy it to this execution; return None if it does not exist."""
        if name not in self.earlier:
            return None
        try:
            with file_io.open_binary(self.earlier[name]) as file:
                states: States = pickle.load(file)  # noqa: S301 - as trusted as the models in the same store
        except Exception as error:  # a damaged pickle can raise any error
            logging.warning("%s cannot be read, the file is analyzed again: %s", self.earlier[name], error)
            return None
        self.store(name, states)
        return states

    def store(self, name: str, states: States) -> None:
        """Add an entry to this execution."""
        temporary = file_io.join(self.folder, f".{uuid.uuid4().hex}")
        with file_io.create(temporary) as file:
            pickle.dump(states, file, pickle.HIGHEST_PROTOCOL)
        fileio.rename(temporary, file_io.join(self.folder, name), overwrite=True)
