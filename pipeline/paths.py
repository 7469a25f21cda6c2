"""Where everything of a pipeline lies: out/<pipeline>/ with pushed/, metadata.db, artifacts/ and logs/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.metadata.database import PORTS, Database, Location, Tls

if TYPE_CHECKING:
    from pipeline.config.model import Config


@dataclass(frozen=True)
class Paths:
    """The folders and files of one pipeline, absolute, so that every process agrees on them."""

    root: Path
    pushed: str
    """A folder, or the URL of one."""
    artifacts: str
    """TFX's pipeline root, a folder or the URL of one: the artifacts of every node."""
    store: Location
    """ML Metadata's: a file of SQLite, or a database on a server."""

    @classmethod
    def of(cls, config: Config) -> Paths:
        """The places that a config names; relative ones start at the working directory."""
        root = Path(config.runtime.output).absolute() / config.pipeline.name
        pushed = config.push.directory or str(root / "pushed")
        artifacts = config.runtime.artifacts or str(root / "artifacts")
        return cls(root, _absolute(pushed), _absolute(artifacts), _store(config, root))

    @property
    def logs(self) -> Path:
        """A folder per run, with a log per node."""
        return self.root / "logs"


def _store(config: Config, root: Path) -> Location:
    told = config.metadata
    if told.backend == "sqlite":
        return root / "metadata.db"
    tls = Tls(told.tls.ca, told.tls.certificate, told.tls.key) if told.tls else None
    port = told.port or PORTS[told.backend]
    # The section has seen to it that all of them are there.
    host, name, user = told.host or "", told.database or "", told.user or ""
    return Database(told.backend, host, port, name, user, told.password_env, tls)


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())


def shown(path: str | Path) -> str:
    """A path as the screen shows it: from the working directory where it lies below that."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)
