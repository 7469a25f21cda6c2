"""The state of a push folder, `registry.json`: the versions that serve, and the history of changes.

`State` is the content of the file in any push folder. The functions below it are for local push folders. A change holds
`lock`; reading does not need it, because the file is replaced atomically. This module does not import heavy packages.
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

from components.base.config_section import Section
from components.base.errors import InputError
from components.base.files import exclusive_lock, open_regular, write_atomically
from components.pusher.config import RolloutConfig
from components.results.version_manifest import is_version

NAME = "registry.json"

Action = Literal["promote", "unstage", "canary", "stop", "rollback"]


def _check_decimals(percent: float) -> float:
    if round(percent, 2) != percent:
        raise ValueError(f"expected at most two decimals, received {percent!r}")
    return percent


Percent = Annotated[float, Field(gt=0, lt=100), AfterValidator(_check_decimals)]
"""A share of the traffic in percent, with at most two decimals, the resolution of the proxies' weights."""


class Canary(Section):
    """A version that gets a share of the traffic to compare it with the stable version."""

    version: int
    percent: Percent


class Stages(Section):
    """The versions that serve: the stable version and the canary, either of them None if it does not exist."""

    stable: int | None = None
    canary: Canary | None = None

    @property
    def versions(self) -> set[int]:
        """The versions that have a stage."""
        canary = self.canary.version if self.canary else None
        return {version for version in (self.stable, canary) if version is not None}


class Change(Section):
    """An entry of the history."""

    at: str
    """Time of the change in ISO 8601, in UTC."""
    action: Action
    by: str
    """Name of the user who made the change, or `run ` followed by the ID of a run."""
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
    """Versions that a push is removing (`push.keep`). They cannot get a stage, and a rollback skips them."""

    @property
    def stages(self) -> Stages:
        """The stages alone, without the settings of the rollout and the history."""
        return Stages(stable=self.stable, canary=self.canary)

    def previous(self, existing: set[int]) -> int | None:
        """Return the previous stable version, to which a rollback returns; None if there is none.

        After a rollback, the versions that were stable after its target are ignored, so the next rollback returns to an
        even earlier version.

        Args:
          existing: Numbers of the versions in the push folder. Versions that do not exist any more are skipped.
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
        return next((version for version in reversed(stack) if version in possible), None)

    def change_stages(self, action: Action, to: Stages, by: str, reason: str | None = None) -> State:
        """Return a state with new stages and a new entry in its history; if the stages are the same, return `self`."""
        if to == self.stages:
            return self
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        entry = Change.model_validate(
            {"at": now, "action": action, "by": by, "from": self.stages, "to": to, "reason": reason}
        )
        return self.model_copy(update={"stable": to.stable, "canary": to.canary, "history": (*self.history, entry)})


def read(folder: str | Path) -> State:
    """Read the state of a local push folder; it is empty if the file does not exist.

    Raises:
      InputError: If the file is damaged or cannot be read. It is not treated as empty, because model servers would then
        unload the versions that serve.
    """
    file = Path(folder) / NAME
    try:
        with open_regular(file) as reader:
            content = reader.read()
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "make the push folder readable") from error
    return parse(content, str(file))


def parse(content: bytes, where: str) -> State:
    """Parse the content of registry.json.

    Args:
      content: Content of the file.
      where: Path or URL of the file, for error messages.

    Raises:
      InputError: If the content is damaged.
    """
    remedy = "restore a copy of the file; or delete it, and promote the version that should serve"
    try:
        return State.model_validate(from_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"{where} is damaged: {problem}", remedy) from error
    except ValueError as error:
        raise InputError(f"{where} is damaged: {error}", remedy) from error


def to_json(state: State) -> str:
    """Return the content of registry.json."""
    fields = {"format": state.format, **state.model_dump(mode="json", by_alias=True)}
    if not state.removing:
        # Older releases do not know this field and refuse files that contain it.
        del fields["removing"]
    return json.dumps(fields, indent=2) + "\n"


def save(folder: str | Path, state: State) -> None:
    """Replace the file atomically. The caller must hold `lock`."""
    write_atomically(Path(folder) / NAME, to_json(state))


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[None]:
    """Hold the exclusive lock that changes of the state require.

    Raises:
      InputError: If the folder does not exist or is not writable.
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
    """Return the numbers of the versions in a local push folder, in ascending order; skip folders with other names."""
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if is_version(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []
