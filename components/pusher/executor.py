"""What the Pusher runs: a blessed model becomes a version with a manifest, in one step, and gets its stage."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from components import version
from components.pusher import remote, rollout, state, target, vertex
from components.pusher.facts import facts
from components.pusher.plan import PushPlan
from components.pusher.state import Stages, State


class Executor(executor.Executor):  # type: ignore[misc]
    """Pushes a blessed model: to a local folder atomically, to a remote one with saved_model.pb last."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed.

        Args:
          input_dict: `model`, and, if there are any, `model_blessing`, `infra_blessing`, `evaluation` and `examples`.
          output_dict: `pushed_model`; gets a copy of the model and the properties `pushed`, `pushed_destination`
            and `pushed_version`, as TFX's Pusher gives them.
          exec_properties: `push_destination`, a PushDestination as JSON, and `plan`, a PushPlan as JSON.

        Raises:
          OSError: the model could not be copied; nothing is left of it in the push folder.
          InputError: the state of the push folder is damaged, or the signing key is empty; nothing was pushed.
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
        key = version.signing_key(os.environ, plan.push.signing_key_env)
        known = facts(input_dict, self._context)
        model = self.GetModelPath(input_dict)
        if not target.is_remote(directory):
            state.read(directory)
        # First the copy that stays with the run: once the version is in the push folder, it is there.
        io_utils.copy_dir(model, pushed.uri)
        at = int(time.time())
        if target.is_remote(directory):
            path, number = remote.place(model, directory, at, known, key)
            if plan.push.keep is not None:
                remote.prune(directory, plan.push.keep)
        else:
            path, number = target.place(model, directory, at, _sealed(known, key))
            _stage(plan, directory, number, by=f"run {known.run}")
        if plan.push.vertex is not None and plan.push.target == "vertex":
            path = vertex.deploy(plan.push.vertex, path, number)
        self._MarkPushed(pushed, pushed_destination=path, pushed_version=str(number))

    def GetModelPath(self, input_dict: dict[str, list[types.Artifact]]) -> str:  # noqa: N802 - TFX's name
        """The model to push: the one with warm-up requests if the serving check has made one."""
        checked = input_dict.get(standard_component_specs.INFRA_BLESSING_KEY)
        if checked and artifact_utils.get_single_instance(checked).get_int_custom_property("has_model"):
            return str(path_utils.stamped_model_path(artifact_utils.get_single_uri(checked)))
        return str(super().GetModelPath(input_dict))


def _sealed(known: version.Facts, key: bytes | None) -> Callable[[Path, int], object]:
    """Writes the manifest into a version that is not yet seen."""
    return lambda folder, number: version.write(folder, known.model_copy(update={"version": number}), key)


def _stage(plan: PushPlan, directory: str, number: int, by: str) -> None:
    """Makes the new version the stable one if the config wants it, removes what is too many, and tells the servers."""
    settings = plan.push.rollout.model_copy(update={"model_name": plan.model_name})
    with state.alone(directory):
        now = state.read(directory)
        new = _staged(now, number, plan.push.stage_on_push, by).model_copy(update={"rollout": settings})
        state.save(directory, new)
        if plan.push.keep is not None:
            gone = target.prune(directory, plan.push.keep)
            logging.info("removed versions beyond push.keep: %s", gone or "none")
        rollout.write(directory, new)


def _staged(now: State, number: int, when: str, by: str) -> State:
    wanted = when == "stable" or (when == "first" and now.stable is None)
    if not wanted or now.canary is not None:
        return now
    return now.changed("promote", Stages(stable=number), by)
