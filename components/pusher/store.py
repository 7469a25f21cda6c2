"""A push folder wherever it is: its versions, and the one place where its stages change.

Three modules implement it: `local_folder`, `gcs_folder`, and `remote_folder` for other object stores, which have no
stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from components import model_signature
from components.errors import InputError
from components.files import is_remote
from components.pusher.config import PushConfig
from components.pusher.serving_state import State
from components.version_manifest import Folder, Provenance

Update = Callable[[State], State]
"""State → new state. It may be called several times, each time with what is stored then; it may raise InputError."""


class Store(Protocol):
    """A push folder."""

    has_stages: bool
    """Whether it keeps a state. If not, `read` returns an empty one and `change` stores nothing."""

    def read(self) -> State:
        """Returns its state, without waiting for a change in progress.

        Raises:
          InputError: the state is damaged or cannot be read.
        """

    def change(self, update: Update) -> State:
        """Replaces the state by `update` of it, exactly once whatever others do; then writes the rollout's files.

        The files follow the state: a process that ends between the two leaves files of an earlier state, and the next
        change, or the same one again, writes them.

        Returns:
          The new state.
        """

    def versions(self) -> list[int]:
        """Returns the complete versions, in ascending order."""

    def leftovers(self) -> list[int]:
        """Returns the numbers of versions that a failed push, or one that still runs, has begun."""

    def version(self, number: int) -> Folder:
        """Returns the folder of a version, which may not exist."""

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        """Copies a model into the folder as a new version with a manifest; a reader sees all of it or none.

        Args:
          model: the folder of a SavedModel.
          number: of the new version; the greatest existing number + 1 if that is greater.
          provenance: for the manifest.
          private_key: makes model.sig in a local folder; None: no such file.

        Returns:
          The path or URL of the new version, and its number.

        Raises:
          OSError: the copy failed; a reader sees no version.
        """

    def remove(self, number: int) -> None:
        """Removes a version; a reader sees all of it or none. It is no error if another process removes it, too."""


def private_key_file(environment: Mapping[str, str], push: PushConfig, path: str) -> Path | None:
    """Returns the file of the key that model.sig is made with in this push folder, or None for no model.sig.

    Raises:
      InputError: the variable names no key; or the push folder is remote, where the files to sign are not at hand.
    """
    name = push.model_signing.private_key_env
    key = model_signature.key_file(environment, name)
    if key is not None and is_remote(path):
        raise InputError(
            f"{name}: expected a local push folder to sign, received {path}",
            f"set push.directory to a local folder, or unset {name}",
        )
    return key


def beyond(store: Store, now: State, keep: int) -> tuple[int, ...]:
    """Returns the versions to remove for `push.keep`, which no stage may get any more.

    Args:
      store: the push folder.
      now: its state.
      keep: how many of the newest versions remain. The stable version, the canary and the previous stable version
        always remain.

    Returns:
      In ascending order: older versions than those to keep, what failed pushes older than them have left, and what
      `removing` has of an earlier push that did not finish.
    """
    existing, leftovers = store.versions(), store.leftovers()
    protected = {*now.versions, now.previous(set(existing))}
    oldest = min(existing[-keep:], default=0)
    removable = {each for each in (*existing, *leftovers) if each < oldest and each not in protected}
    return tuple(sorted(removable | ({*now.removing} & {*existing, *leftovers})))
