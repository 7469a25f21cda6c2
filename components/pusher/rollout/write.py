"""Writes the rollout's files beside the versions, each in one step, so that who polls one never reads half of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from components.pusher.rollout import haproxy, kubernetes, serving
from components.pusher.rollout.view import View
from components.pusher.state import State, replace, versions

FOLDER = "rollout"
_KSERVE = "/mnt/models"
"""Where KServe puts what it serves."""


def write(folder: str | Path, state: State) -> None:
    """Writes all files anew; call it under the lock of the state.

    Args:
      folder: the push folder.
      state: as just saved; its rollout settings name the model.
    """
    push, out = Path(folder).absolute(), Path(folder) / FOLDER
    view = _view(push, state)
    files = {
        "models.config": serving.labelled(view),
        "models-stable.config": serving.of_track(view, "stable"),
        "models-canary.config": serving.of_track(view, "canary"),
        "haproxy.cfg": haproxy.config(view),
        "virtual-service.yaml": kubernetes.virtual_service(view),
        "inference-service.yaml": kubernetes.inference_service(view),
    }
    in_kserve = dataclasses.replace(view, base_path=_KSERVE)
    of_versions = {f"{version}.config": serving.of_version(in_kserve, version) for version in view.versions}
    (out / "versions").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace(out / name, content)
    for name, content in of_versions.items():
        replace(out / "versions" / name, content)
    for old in (out / "versions").glob("*.config"):
        if old.name not in of_versions:
            old.unlink()


def _view(push: Path, state: State) -> View:
    settings = state.rollout
    return View(
        name=settings.model_name or push.name,
        base_path=settings.base_path or str(push),
        settings=settings,
        stable=state.stable,
        canary=state.canary,
        previous=state.previous(set(versions(push))),
    )
