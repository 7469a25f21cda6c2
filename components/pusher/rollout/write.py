"""The rollout's files, and how a local push folder gets them: each atomically, because model servers poll them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from components.files import write_atomically
from components.pusher.rollout import haproxy, kubernetes, model_server_config
from components.pusher.rollout.snapshot import RolloutSnapshot
from components.pusher.serving_state import State, versions

FOLDER, VERSIONS = "rollout", "versions"
"""The folder in the push folder, and the one in it with a file for each version."""
_KSERVE = "/mnt/models"
"""Where KServe mounts the push folder."""


def write(folder: str | Path, state: State) -> None:
    """Writes all files of a local push folder; the caller holds `serving_state.lock`.

    Args:
      folder: the push folder.
      state: its current state, whose rollout settings name the model.
    """
    out = Path(folder) / FOLDER
    content = files(str(Path(folder).absolute()), state, versions(folder))
    for name, text in content.items():
        write_atomically(out / name, text)
    for old in (out / VERSIONS).glob("*.config"):
        if f"{VERSIONS}/{old.name}" not in content:
            old.unlink()


def files(push_folder: str, state: State, existing: Iterable[int]) -> dict[str, str]:
    """Returns the files, path below `rollout/` → content, in the order in which they are to be written.

    Args:
      push_folder: its absolute path or its URL.
      state: its state, whose rollout settings name the model.
      existing: the versions in it.
    """
    settings = state.rollout
    snapshot = RolloutSnapshot(
        name=settings.model_name or push_folder.rpartition("/")[2],
        base_path=settings.base_path or push_folder,
        settings=settings,
        stable=state.stable,
        canary=state.canary,
        previous=state.previous(set(existing)),
    )
    in_kserve = dataclasses.replace(snapshot, base_path=_KSERVE)
    return {
        "models.config": model_server_config.labelled(snapshot),
        "models-stable.config": model_server_config.of_track(snapshot, "stable"),
        "models-canary.config": model_server_config.of_track(snapshot, "canary"),
        "haproxy.cfg": haproxy.config(snapshot),
        "virtual-service.yaml": kubernetes.virtual_service(snapshot),
        "inference-service.yaml": kubernetes.inference_service(snapshot),
        **{
            f"{VERSIONS}/{version}.config": model_server_config.of_version(in_kserve, version)
            for version in snapshot.versions
        },
    }
