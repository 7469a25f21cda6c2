"""Writes the rollout's files into the push folder, each atomically, because model servers poll them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from components.files import write_atomically
from components.pusher.rollout import haproxy, kubernetes, model_server_config
from components.pusher.rollout.snapshot import RolloutSnapshot
from components.pusher.serving_state import State, versions

FOLDER = "rollout"
_KSERVE = "/mnt/models"
"""Where KServe mounts the push folder."""


def write(folder: str | Path, state: State) -> None:
    """Writes all files; the caller holds `serving_state.lock`.

    Args:
      folder: the push folder.
      state: its current state, whose rollout settings name the model.
    """
    push, out = Path(folder).absolute(), Path(folder) / FOLDER
    snapshot = _snapshot(push, state)
    files = {
        "models.config": model_server_config.labelled(snapshot),
        "models-stable.config": model_server_config.of_track(snapshot, "stable"),
        "models-canary.config": model_server_config.of_track(snapshot, "canary"),
        "haproxy.cfg": haproxy.config(snapshot),
        "virtual-service.yaml": kubernetes.virtual_service(snapshot),
        "inference-service.yaml": kubernetes.inference_service(snapshot),
    }
    in_kserve = dataclasses.replace(snapshot, base_path=_KSERVE)
    of_versions = {
        f"{version}.config": model_server_config.of_version(in_kserve, version) for version in snapshot.versions
    }
    (out / "versions").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content)
    for name, content in of_versions.items():
        write_atomically(out / "versions" / name, content)
    for old in (out / "versions").glob("*.config"):
        if old.name not in of_versions:
            old.unlink()


def _snapshot(push: Path, state: State) -> RolloutSnapshot:
    settings = state.rollout
    return RolloutSnapshot(
        name=settings.model_name or push.name,
        base_path=settings.base_path or str(push),
        settings=settings,
        stable=state.stable,
        canary=state.canary,
        previous=state.previous(set(versions(push))),
    )
