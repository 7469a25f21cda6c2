"""Write the rollout's files of a push folder.

Every file of a local push folder is replaced atomically, because model servers poll the files.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from components.base.files import write_atomically
from components.pusher.rollout import haproxy, kubernetes, model_server_config
from components.pusher.rollout.served_versions import wait_until_listed
from components.pusher.rollout.snapshot import RolloutSnapshot
from components.pusher.serving_state import State, versions

FOLDER, VERSIONS, MODELS = "rollout", "versions", "models.config"
"""The folder in the push folder, its subfolder with one file per version, and the file with the labels."""
_KSERVE = "/mnt/models"
"""The path at which KServe mounts the push folder."""


def write(folder: str | Path, state: State) -> None:
    """Write the files of a local push folder. The caller must hold `serving_state.lock`.

    Args:
      folder: Push folder.
      state: Current state of the push folder.
    """
    out, push_folder, existing = Path(folder) / FOLDER, str(Path(folder).absolute()), versions(folder)
    with contextlib.suppress(FileNotFoundError):
        before = (out / MODELS).read_text(encoding="utf-8")
        if announcement := announce(before, push_folder, state, existing):
            write_atomically(out / MODELS, announcement.text)
            announcement.wait()
    content = files(push_folder, state, existing)
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
    snapshot = _take_snapshot(push_folder, state, existing)
    in_kserve = dataclasses.replace(snapshot, base_path=_KSERVE)
    return {
        MODELS: model_server_config.render_labels(snapshot),
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


class Announcement(NamedTuple):
    """A models.config that lists a version before a label moves to it; see `render_announcement`.

    Attributes:
      text: Content of the file.
      snapshot: State of the push folder.
    """

    text: str
    snapshot: RolloutSnapshot

    def wait(self) -> None:
        """Wait until the model servers have read the file."""
        wait_until_listed(self.snapshot.settings.servers, self.snapshot.name, self.snapshot.versions)


def announce(before: str, push_folder: str, state: State, existing: Iterable[int]) -> Announcement | None:
    """Return the models.config to write before the final one; None if the final one can be written at once.

    Args:
      before: Current content of models.config.
      push_folder: Absolute path or URL of the push folder.
      state: State of the push folder.
      existing: Numbers of the versions in the push folder.
    """
    existing = set(existing)
    snapshot = _take_snapshot(push_folder, state, existing)
    text = model_server_config.render_announcement(before, snapshot, existing)
    return None if text is None else Announcement(text, snapshot)


def _take_snapshot(push_folder: str, state: State, existing: Iterable[int]) -> RolloutSnapshot:
    settings = state.rollout
    return RolloutSnapshot(
        name=settings.model_name or push_folder.rpartition("/")[2],
        base_path=settings.base_path or push_folder,
        settings=settings,
        stable=state.stable,
        canary=state.canary,
        previous=state.previous(set(existing)),
    )
