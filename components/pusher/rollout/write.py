"""Write the rollout's files of a push folder.

Every file of a local push folder is replaced atomically, because model servers poll the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from components.base.files import write_atomically
from components.pusher.rollout import haproxy, kubernetes, model_server_config
from components.pusher.rollout.snapshot import RolloutSnapshot
from components.pusher.serving_state import State, versions

FOLDER, VERSIONS = "rollout", "versions"
"""The folder in the push folder, and its subfolder with one file per version."""
_KSERVE = "/mnt/models"
"""The path at which KServe mounts the push folder."""


def write(folder: str | Path, state: State) -> None:
    """Write the files of a local push folder. The caller must hold `serving_state.lock`.

    Args:
      folder: Push folder.
      state: Current state of the push folder.
    """
    out = Path(folder) / FOLDER
    content = files(str(Path(folder).absolute()), state, versions(folder))
    for name, text in content.items():
        write_atomically(out / name, text)
    for file in (out / VERSIONS).glob("*.config"):
        if f"{VERSIONS}/{file.name}" not in content:
            file.unlink()


def files(push_folder: str, state: State, existing: Iterable[int]) -> dict[str, str]:
    """Return the content of the rollout's files.

    Args:
      push_folder: Absolute path or URL of the push folder.
      state: State of the push folder. If its rollout settings do not name the model, the model has the folder's name.
      existing: Numbers of the versions in the push folder.

    Returns:
      Path of a file below `rollout/` → its content, in the order in which the files must be written.
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
        "models.config": model_server_config.render_labels(snapshot),
        "models-stable.config": model_server_config.render_track(snapshot, "stable"),
        "models-canary.config": model_server_config.render_track(snapshot, "canary"),
        "haproxy.cfg": haproxy.render_config(snapshot),
        "virtual-service.yaml": kubernetes.render_virtual_service(snapshot),
        "inference-service.yaml": kubernetes.render_inference_service(snapshot),
        **{
            f"{VERSIONS}/{version}.config": model_server_config.render_version(in_kserve, version)
            for version in snapshot.versions
        },
    }
