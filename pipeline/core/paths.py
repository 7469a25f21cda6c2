"""The folders, files and stores of one pipeline: out/<pipeline>/ with pushed/, metadata.db, artifacts/ and logs/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.core.metadata.location import Location


@dataclass(frozen=True)
class Paths:
    """The folders and files of one pipeline, absolute, so that every process agrees on them.

    Attributes:
      root: its output folder, `<output>/<pipeline>`.
      pushed: the push destination, a folder or the URL of one.
      artifacts: TFX's pipeline root, a folder or the URL of one, with the artifacts of every node.
      store: the ML Metadata store: an SQLite file, or a database on a server.
    """

    root: Path
    pushed: str
    artifacts: str
    store: Location

    @property
    def logs(self) -> Path:
        """The folder with one folder per run, which holds a log per node."""
        return self.root / "logs"
