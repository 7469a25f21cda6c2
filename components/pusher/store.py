"""The interface of a push folder: its versions, and its state, which assigns stages to versions.

Three modules implement it: `local_folder`, `bucket_folder` for gs://, s3:// and az://, and `remote_folder` for other
URLs, which do not support stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from components.base.errors import InputError
from components.base.files import is_remote
from components.pusher.config import PushConfig
from components.pusher.serving_state import State
from components.results import model_signature
from components.results.version_manifest import Folder, Provenance

Update = Callable[[State], State]
"""Takes the stored state and returns the new state. It is called again if another process changes the state in between,
and may raise an InputError."""


class Store(Protocol):
    """A push folder."""

    has_stages: bool
    """Whether the folder stores a state. If not, `read` returns an empty state and `change` does not store anything."""

    def read(self) -> State:
        """Return the state, without waiting for a change in progress.

        Raises:
          InputError: If the state is damaged or cannot be read.
        """

    def change(self, update: Update) -> State:
        """Replace the state by the result of `update`, exactly once even if other processes change it at the same time.

        The rollout's files are written after the state. If the process ends in between, they still correspond to an
        earlier state; the next change, or a repetition of the same change, writes them.

        Args:
          update: Computes the new state from the stored state.

        Returns:
          The new state.
        """

    def versions(self) -> list[int]:
        """Return the numbers of the complete versions, in ascending order."""

    def leftovers(self) -> list[int]:
        """Return the numbers of incomplete versions, whose push failed or is still running."""

    def version(self, number: int) -> Folder:
        """Return the folder of a version, which does not need to exist."""

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        """Copy a model into the folder as a new version with a manifest; readers see the complete version or nothing.

        Args:
          model: Folder of a SavedModel.
          number: Minimum number of the new version. The number is greater than that of any existing version.
          provenance: Content of the manifest.
          private_key: Path of the key that signs the version in a local folder. If None, `model.sig` is not written.

        Returns:
          Path or URL of the new version, and its number.

        Raises:
          OSError: If the copy fails. Readers do not see the version then.
        """

    def remove(self, number: int) -> None:
        """Remove a version; readers see the complete version or nothing. Other processes may remove it as well."""


def private_key_file(environment: Mapping[str, str], push: PushConfig, path: str) -> Path | None:
    """Return the path of the key that signs versions in a push folder; None if versions are not signed.

    Args:
      environment: Environment variables.
      push: The section `push` of the config, which contains the name of the variable with the path of the key.
      path: Path or URL of the push folder.

    Raises:
      InputError: If the variable does not name a key, or the push folder is remote. Only local files can be signed.
    """
    name = push.model_signing.private_key_env
    key = model_signature.key_file(environment, name)
    if key is not None and is_remote(path):
        raise InputError(
            f"{name}: expected a local push folder to sign, received {path}",
            f"set push.directory to a local folder, or unset {name}",
        )
    return key


def find_removable(store: Store, now: State, keep: int) -> tuple[int, ...]:
    """Return the versions to remove for `push.keep`.

    Args:
      store: Push folder.
      now: State of the push folder.
      keep: Number of newest versions that remain. The stable version, the canary and the previous stable version remain
        in any case.

    Returns:
      Numbers in ascending order: versions that are older than the versions to keep, the remains of failed pushes that
      are older as well, and existing versions in `removing`, whose removal by an earlier push did not finish.
    """
    existing, leftovers = store.versions(), store.leftovers()
    protected = {*now.versions, now.previous(set(existing))}
    oldest = min(existing[-keep:], default=0)
    removable = {version for version in (*existing, *leftovers) if version < oldest and version not in protected}
    return tuple(sorted(removable | ({*now.removing} & {*existing, *leftovers})))
