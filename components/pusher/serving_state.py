"""Which pushed versions serve: `registry.json` in the push folder, with its history.

`State` is its content, wherever the push folder is. The functions below it are for a local one: a change takes `lock`;
reading takes no lock, since the file is replaced atomically. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import from_json

from components.config_section import Section
from components.errors import InputError
from components.files import exclusive_lock, open_regular, write_atomically
from components.pusher.config import RolloutConfig
from components.version_manifest import is_version

NAME = "registry.json"

Action = Literal["promote", "unstage", "canary", "stop", "rollback"]


def _hundredths(percent: float) -> float:
    if round(percent, 2) != percent:
        raise ValueError(f"expected at most two decimals, received {percent!r}")
    return percent


Percent = Annotated[float, Field(gt=0, lt=100), AfterValidator(_hundredths)]
"""A share of the traffic in percent, with at most two decimals, as proxies take it."""


class Canary(Section):
    """A version that gets a share of the traffic, in percent."""

    version: int
    percent: Percent


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
    """An entry of the history."""

    at: str
    """ISO 8601, in UTC."""
    action: Action
    by: str
    """A user's name, or `run ` and the id of a run."""
    before: Stages = Field(alias="from")
    after: Stages = Field(alias="to")
    reason: str | None = None


class State(Stages):
    """The content of registry.json."""

    format: Literal[1] = 1
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """The settings that the rollout's files were last written with."""
    history: tuple[Change, ...] = ()
    removing: tuple[int, ...] = ()
    """Versions that a push is removing (`push.keep`). They get no stage any more, and no rollback goes back to them."""

    @property
    def stages(self) -> Stages:
        """The stages without rollout settings and history."""
        return Stages(stable=self.stable, canary=self.canary)

    def previous(self, existing: set[int]) -> int | None:
        """Returns the previous stable version, which a rollback goes back to, or None.

        A rollback removes the versions after its own from consideration, so the next rollback goes further back.

        Args:
          existing: the versions in the push folder; others are skipped.
        """
        stack: list[int] = []
        for change in self.history:
            stable = change.after.stable
            if change.action == "rollback" and stable in stack:
                while stack[-1] != stable:
                    stack.pop()
            elif stable is not None and stable not in stack[-1:]:
                stack.append(stable)
        possible = existing - {self.stable, *self.removing}
        return next((each for each in reversed(stack) if each in possible), None)

    def changed(self, action: Action, to: Stages, by: str, reason: str | None = None) -> State:
        """Returns the state with other stages and one more entry in its history; the same state if nothing changes."""
        if to == self.stages:
            return self
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        entry = Change.model_validate(
            {"at": now, "action": action, "by": by, "from": self.stages, "to": to, "reason": reason}
        )
        return self.model_copy(update={"stable": to.stable, "canary": to.canary, "history": (*self.history, entry)})


def read(folder: str | Path) -> State:
    """Reads the state of a push folder; without a file it is empty.

    Raises:
      InputError: the file is damaged. It is not treated as empty, because then the serving versions would be unloaded.
    """
    file = Path(folder) / NAME
    try:
        with open_regular(file) as opened:
            content = opened.read()
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "make the push folder readable") from error
    return parse(content, str(file))


def parse(content: bytes, where: str) -> State:
    """Parses the content of registry.json.

    Args:
      content: of the file.
      where: its path or URL, for messages.

    Raises:
      InputError: it is damaged.
    """
    remedy = "restore a copy of the file; or delete it, and promote the version that is to serve"
    try:
        return State.model_validate(from_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"{where} is damaged: {problem}", remedy) from error
    except ValueError as error:
        raise InputError(f"{where} is damaged: {error}", remedy) from error


def to_json(state: State) -> str:
    """Returns the content of registry.json."""
    fields = {"format": state.format, **state.model_dump(mode="json", by_alias=True)}
    if not state.removing:
        # Checkouts before this field read all other files.
        del fields["removing"]
    return json.dumps(fields, indent=2) + "\n"


def save(folder: str | Path, state: State) -> None:
    """Replaces the file atomically; the caller holds `lock`."""
    write_atomically(Path(folder) / NAME, to_json(state))


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[None]:
    """Holds the exclusive lock for changes of the state.

    Raises:
      InputError: the folder does not exist, or is not writable.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(Path(folder) / ".registry.lock"))
        except OSError as error:
            raise InputError(
                f"cannot write to the push folder {folder}: {error.strerror}",
                "name the folder that models are pushed to",
            ) from error
        yield


def versions(folder: str | Path) -> list[int]:
    """Returns the versions in a push folder, in ascending order; folders with other names are skipped."""
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if is_version(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []
