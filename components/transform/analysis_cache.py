"""What the accumulators of the analysis hold of each file of examples, kept for later executions.

A run over several spans reads all spans of the run before again, but the oldest. ExampleGen writes the rows of a span
to files of their own, which have the same content in each run. So an entry is found by a digest of a file, and only
files without an entry are analyzed.
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
"""Bytes of a file that are read at once."""

States = Sequence[tuple[tuple[int, int], Any]]
"""(number of the requirement, part), state of its accumulator; several of the same key add up."""


@dataclass(frozen=True)
class AnalysisCache:
    """The entries of this execution and of earlier ones.

    Attributes:
      folder: Of this execution; in the end it has the entries of all files of the run, whoever computed them.
      earlier: Name of an entry → its path in the folder of an earlier execution.
      dependency: What the states depend on beside the content of the file.
    """

    folder: str
    earlier: Mapping[str, str]
    dependency: str

    @classmethod
    def open(cls, folder: str, dependency: str) -> AnalysisCache:
        """Return the cache with the entries of the folders beside `folder`, one for each execution of the node."""
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
        """Return an entry of an earlier execution, which this one then ha as well; None if there is none."""
        if name not in self.earlier:
            return None
        try:
            with file_io.open_binary(self.earlier[name]) as file:
                states: States = pickle.load(file)  # noqa: S301 - trusted as the models beside it
        except Exception as error:  # of a damaged pickle, any
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
