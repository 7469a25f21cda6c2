"""Which pushed version serves: `registry.json` beside the versions, changed under a lock, with its history.

Reading needs no lock, since the file is replaced as a whole. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from components.errors import InputError
from components.pusher.config import RolloutConfig
from components.section import Section
from components.version import is_version

NAME = "registry.json"

Action = Literal["promote", "unstage", "canary", "stop", "rollback"]


class Canary(Section):
    """A version that gets a share of the traffic."""

    version: int
    percent: float = Field(gt=0, lt=100)

    @field_validator("percent")
    @classmethod
    def _fine_enough(cls, percent: float) -> float:
        if round(percent, 2) != percent:
            raise ValueError(f"expected at most two decimals, received {percent!r}")
        return percent


class Stages(Section):
    """Which versions serve."""

    stable: int | None = None
    canary: Canary | None = None

    @property
    def versions(self) -> set[int]:
        """The versions that have a stage."""
        canary = self.canary.version if self.canary else None
        return {each for each in (self.stable, canary) if each is not None}


class Change(Section):
    """One line of the history."""

    at: str
    """ISO 8601, in UTC."""
    action: Action
    by: str
    """A user, or a run."""
    before: Stages = Field(alias="from")
    after: Stages = Field(alias="to")
    reason: str | None = None


class State(Stages):
    """What stands in registry.json."""

    format: Literal[1] = 1
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """As the rollout's files were last written."""
    history: tuple[Change, ...] = ()

    @property
    def stages(self) -> Stages:
        """The stages alone."""
        return Stages(stable=self.stable, canary=self.canary)

    def previous(self, there: set[int]) -> int | None:
        """The version that was stable before the one that is, of those still there: where a rollback goes.

        A rollback takes its version off, so the next one goes further back, not forth.
        """
        trail: list[int] = []
        for change in self.history:
            stable = change.after.stable
            if change.action == "rollback" and stable in trail:
                while trail[-1] != stable:
                    trail.pop()
            elif stable is not None and stable not in trail[-1:]:
                trail.append(stable)
        return next((each for each in reversed(trail) if each != self.stable and each in there), None)

    def changed(self, action: Action, to: Stages, by: str, reason: str | None = None) -> State:
        """The state after a change, with a line more in its history; the same state if nothing changes."""
        if to == self.stages:
            return self
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        line = Change.model_validate(
            {"at": now, "action": action, "by": by, "from": self.stages, "to": to, "reason": reason}
        )
        return self.model_copy(update={"stable": to.stable, "canary": to.canary, "history": (*self.history, line)})


def read(folder: str | Path) -> State:
    """The state of a push folder; an empty one where nothing was ever staged.

    Raises:
      InputError: the file is damaged. It is never taken for an empty one: that would stop what serves.
    """
    file = Path(folder) / NAME
    remedy = "put back a copy of the file; or take it away, and promote the version that shall serve"
    try:
        return State.model_validate(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "make the push folder readable") from error
    except ValidationError as error:
        first = error.errors()[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"{file} is damaged: {told}", remedy) from error
    except ValueError as error:
        raise InputError(f"{file} is damaged: {error}", remedy) from error


def save(folder: str | Path, state: State) -> None:
    """Replaces the file, whole; call it `alone`."""
    told = {"format": state.format, **state.model_dump(mode="json", by_alias=True)}
    replace(Path(folder) / NAME, json.dumps(told, indent=2) + "\n")


@contextlib.contextmanager
def alone(folder: str | Path) -> Iterator[None]:
    """Lets one process at a time change the state; the lock of a killed one is gone with it.

    Raises:
      InputError: the folder is not there, or may not be written to.
    """
    try:
        lock = (Path(folder) / ".registry.lock").open("a")
    except OSError as error:
        raise InputError(
            f"cannot write to the push folder {folder}: {error.strerror}", "name the folder that models are pushed to"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace(file: Path, content: str) -> None:
    """Writes a file beside its place, brings it to the disk, and puts it there in one step."""
    beside = file.with_name(f".{file.name}.partial")
    with beside.open("w", encoding="utf-8") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())
    beside.replace(file)


def versions(folder: str | Path) -> list[int]:
    """The versions in a push folder, in order; hidden and other names are none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if is_version(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []
