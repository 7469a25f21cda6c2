"""The Pusher's executor: push a blessed model as a new version with a manifest, and assign its stage."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from components.base.errors import MachineError
from components.compat.tfx import executor_context
from components.data.edge_models import PASSED, PUSHED
from components.pusher import vertex_endpoint
from components.pusher.open_store import open_store
from components.pusher.plan import PushPlan
from components.pusher.provenance import collect_provenance
from components.pusher.serving_state import Stages, State
from components.pusher.store import Store, find_removable, private_key_file
from components.results import version_manifest


class Executor(executor.Executor):  # type: ignore[misc]
    """Pushes a blessed model: atomically to a local folder, or to a remote folder with saved_model.pb last."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Push the model if it is blessed.

        Args:
          input_dict: `model`; optionally `model_blessing`, `infra_blessing`, `evaluation`, `examples` and `edge`.
          output_dict: `pushed_model`. The model is copied to it, and its properties `pushed`, `pushed_destination` and
            `pushed_version` are set as TFX's Pusher does.
          exec_properties: `push_destination`, a PushDestination as JSON, and `plan`, a PushPlan as JSON.

        Raises:
          OSError: If the model cannot be copied. No part of the copy remains in the push folder.
          InputError: If the state of the push folder is damaged, or the signing key is not valid. Nothing is pushed.
          MachineError: If another push removed the version before its stage was assigned.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        plan = PushPlan.model_validate_json(exec_properties["plan"])
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination)
        directory = destination.filesystem.base_directory
        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        private_key = private_key_file(os.environ, plan.push, directory)
        provenance = collect_provenance(input_dict, executor_context(self))
        model = self.GetModelPath(input_dict)
        store = open_store(directory)
        # Read the state to fail before anything is written if it is damaged.
        store.read()
        # Copy to the output artifact first, so that every version in the push folder has an artifact.
        io_utils.copy_dir(model, pushed.uri)
        if _copy_edge(input_dict, f"{pushed.uri}/{PUSHED}"):
            model = pushed.uri
        path, number = store.add(model, int(time.time()), provenance, private_key)
        _assign_stage(store, plan, number, by=f"run {provenance.run}")
        if plan.push.vertex is not None and plan.push.target == "vertex":
            path = vertex_endpoint.deploy(plan.push.vertex, path, number)
        self._MarkPushed(pushed, pushed_destination=path, pushed_version=str(number))

    def GetModelPath(self, input_dict: dict[str, list[types.Artifact]]) -> str:  # noqa: N802 - TFX's name
        """Return the folder of the model to push: the serving check's copy with warm-up requests if it exists."""
        checked = input_dict.get(standard_component_specs.INFRA_BLESSING_KEY)
        if checked and artifact_utils.get_single_instance(checked).get_int_custom_property("has_model"):
            return str(path_utils.stamped_model_path(artifact_utils.get_single_uri(checked)))
        return str(super().GetModelPath(input_dict))


def _copy_edge(input_dict: dict[str, list[types.Artifact]], folder: str) -> bool:
    """Copy the edge variants that passed their checks to a folder; return whether any exist."""
    if not input_dict.get("edge"):
        return False
    passed = f"{artifact_utils.get_single_uri(input_dict['edge'])}/{PASSED}"
    if not fileio.exists(passed):
        return False
    io_utils.copy_dir(passed, folder)
    return True


def _assign_stage(store: Store, plan: PushPlan, number: int, by: str) -> None:
    """Make a new version stable if the config says so, and remove old versions (`push.keep`).

    The versions to remove are recorded before they are removed. A command that runs at the same time then cannot assign
    a stage to one of them, and if this push is killed, the next push removes them.
    """
    settings = plan.push.rollout.model_copy(update={"model_name": plan.model_name})

    def update(now: State) -> State:
        _check_complete(store, number, now)
        new = _promote(now, number, plan.push.stage_on_push, by).model_copy(update={"rollout": settings})
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


def _promote(now: State, number: int, stage_on_push: str, by: str) -> State:
    becomes_stable = stage_on_push == "stable" or (stage_on_push == "first" and now.stable is None)
    if not becomes_stable or now.canary is not None:
        return now
    return now.change_stages("promote", Stages(stable=number), by)
