"""The folders, files and stores of one pipeline: out/<pipeline>/ with pushed/, metadata.db, artifacts/ and logs/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.core.metadata.location import Location


@dataclass(frozen=True)
class Paths:
    """The folders and files of one pipeline, as absolute paths, so that processes with other working directories agree.

    Attributes:
      root: Output folder of the pipeline, `<output>/<pipeline>`.
      pushed: Push destination; a path or a URL.
      artifacts: TFX's pipeline root with the artifacts of every node; a path or a URL.
      store: Location of the ML Metadata store; an SQLite file or a database on a server.
    """

    root: Path
    pushed: str
    artifacts: str
    store: Location

    @property
    def logs(self) -> Path:
        """Folder of the run logs: one subfolder per run, with a log file per node."""
        return self.root / "logs"
