"""Publish a model: add it to a push folder as a new version, assign its stage, and remove old versions."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from components.base.errors import MachineError
from components.pusher import vertex_endpoint
from components.pusher.plan import PushPlan
from components.pusher.serving_state import Stages, State
from components.pusher.store import Store, find_removable
from components.results import version_manifest
from components.results.version_manifest import Provenance


def publish(
    store: Store, plan: PushPlan, model: str, provenance: Provenance, private_key: Path | None = None
) -> tuple[str, int]:
    """Add a model to the push folder as a new version, and finish the push as `finish` does.

    Args:
      store: Push folder.
      plan: Settings of the push.
      model: Folder of the SavedModel.
      provenance: Content of the manifest. If it contains an approval, the history names the approver and the note.
      private_key: Path of the key that signs the version. If None, the version is not signed.

    Returns:
      Path or URL of the version, or the resource name of the model on a Vertex AI endpoint; and the version's number.

    Raises:
      OSError: The model cannot be copied. No part of the copy is visible.
      MachineError: Another push removed the version before its stage was assigned.
    """
    path, number = store.add(model, int(time.time()), provenance, private_key)
    return finish(store, plan, path, number, provenance), number


def finish(store: Store, plan: PushPlan, path: str, number: int, provenance: Provenance) -> str:
    """Assign the stage of a version that was added, remove old versions, and deploy it to an endpoint.

    A repetition after an interruption does not make a version stable that was stable before.

    Args:
      store: Push folder.
      plan: Settings of the push.
      path: Path or URL of the version.
      number: Number of the version.
      provenance: Content of the version's manifest.

    Returns:
      `path`, or the resource name of the model on a Vertex AI endpoint.

    Raises:
      MachineError: Another push removed the version.
    """
    _assign_stage(store, plan, number, provenance)
    if plan.push.vertex is not None and plan.push.target == "vertex":
        return vertex_endpoint.deploy(plan.push.vertex, path, number)
    return path


def _assign_stage(store: Store, plan: PushPlan, number: int, provenance: Provenance) -> None:
    """Make a new version stable if the config says so, and remove old versions (`push.keep`).

    The versions to remove are recorded before they are removed. A command that runs at the same time then cannot assign
    a stage to one of them, and if this push is killed, the next push removes them.
    """
    settings = plan.push.rollout.model_copy(update={"model_name": plan.model_name})

    def update(now: State) -> State:
        _check_complete(store, number, now)
        new = _promote(now, number, plan.push.stage_on_push, provenance).model_copy(update={"rollout": settings})
        if plan.push.keep is None:
            return new
        return new.model_copy(update={"removing": find_removable(store, new, plan.push.keep)})

    new = store.change(update)
    if plan.push.keep is None:
        return
    removing = set(new.removing)
    for version in sorted(removing):
        store.remove(version)
    if removing:
        store.change(lambda now: now.model_copy(update={"removing": tuple({*now.removing} - removing)}))
    logging.info("removed versions beyond push.keep: %s", sorted(removing) or "none")


def _check_complete(store: Store, number: int, now: State) -> None:
    """Raise a MachineError if another push removed the version or a part of it (`push.keep`)."""
    if number in store.versions() and number not in now.removing:
        folder = store.version(number)
        if version_manifest.read(folder).files.keys() <= set(folder.files()):
            return
    raise MachineError(
        f"{store.version(number)} was removed by another push that ran at the same time: push.keep",
        "push again, or raise push.keep",
    )


def _promote(now: State, number: int, stage_on_push: str, provenance: Provenance) -> State:
    becomes_stable = stage_on_push == "stable" or (stage_on_push == "first" and now.stable is None)
    if not becomes_stable or now.canary is not None:
        return now
    approval = provenance.approval
    if approval is None:
        return now.change_stages("promote", Stages(stable=number), f"run {provenance.run}")
    # A repeated approval must not undo a later change of the stages.
    if any(change.after.stable == number for change in now.history):
        return now
    return now.change_stages("promote", Stages(stable=number), approval.by, approval.note)
