"""Copies of pushed versions on this machine, for programs that cannot read an object store."""

from __future__ import annotations

from components.base.errors import InputError
from components.pusher import local_folder
from components.pusher.open_store import open_store
from components.pusher.serving_state import State
from pipeline.registry.versions import PushFolder


def mirror(push_folder: PushFolder, target: str) -> State:
    """Make a local push folder serve the same versions with the same stages as another push folder.

    The versions that serve, and the version to which a rollback returns, are copied and compared with their manifests.
    Then the state and the rollout's files are written, and other versions are removed. Model servers therefore see
    complete versions only, and every version that the files name.

    Args:
      push_folder: Push folder to copy from, usually in an object store.
      target: Local push folder. It is created if it does not exist. Nobody else may push to it.

    Returns:
      The state of both folders.

    Raises:
      InputError: No version is stable, or a version does not match its manifest.
      MachineError: The object store does not answer. The local folder then continues to serve what it has.
    """
    state = push_folder.state()
    if state.stable is None:
        raise InputError(
            f"{push_folder.path}: expected a stable version to copy, found none",
            "make a version stable: `python runner.py models promote VERSION`",
        )
    existing = set(push_folder.versions())
    copied = {*state.versions, state.previous(existing)} & existing
    for number in sorted(number for number in copied if number is not None):
        local_folder.copy_version(push_folder.find(number), target)
    store = open_store(target)
    settings = push_folder.settings or state.rollout
    if settings.model_name is None:
        # The default would be the name of the local folder.
        settings = settings.model_copy(update={"model_name": push_folder.path.rstrip("/").rpartition("/")[2]})
    store.change(lambda _: state.model_copy(update={"rollout": settings, "removing": ()}))
    for number in set(store.versions()) - copied:
        store.remove(number)
    return state
