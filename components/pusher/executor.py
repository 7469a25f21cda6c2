"""The Pusher's executor: push a blessed model as a new version, or record it as a candidate that waits for approval."""

from __future__ import annotations

import os
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from components.compat.tfx import executor_context
from components.data.edge_models import PASSED, PUSHED
from components.pusher import candidate
from components.pusher.candidate import Candidate
from components.pusher.open_store import open_store
from components.pusher.plan import PushPlan
from components.pusher.provenance import collect_provenance
from components.pusher.publish import publish
from components.pusher.store import private_key_file
from components.results.version_manifest import Provenance


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
            `pushed_version` are set as TFX's Pusher does. With `push.approval: required`, nothing is pushed, and its
            properties describe the candidate.
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
        waits = plan.push.approval == "required"
        # The machine that approves the model signs it, so a run that waits does not need the key.
        private_key = None if waits else private_key_file(os.environ, plan.push, directory)
        provenance = collect_provenance(input_dict, executor_context(self))
        model = self.GetModelPath(input_dict)
        store = open_store(directory)
        # Read the state to fail before anything is written if it is damaged.
        store.read()
        # Copy to the output artifact first, so that every version in the push folder has an artifact.
        io_utils.copy_dir(model, pushed.uri)
        if _copy_edge(input_dict, f"{pushed.uri}/{PUSHED}"):
            model = pushed.uri
        if waits:
            _record_candidate(pushed, directory, plan, provenance)
            self._MarkNotPushed(pushed)
            return
        path, number = publish(store, plan, model, provenance, private_key)
        self._MarkPushed(pushed, pushed_destination=path, pushed_version=str(number))

    def GetModelPath(self, input_dict: dict[str, list[types.Artifact]]) -> str:  # noqa: N802 - TFX's name
        """Return the folder of the model to push: the serving check's copy with warm-up requests if it exists."""
        checked = input_dict.get(standard_component_specs.INFRA_BLESSING_KEY)
        if checked and artifact_utils.get_single_instance(checked).get_int_custom_property("has_model"):
            return str(path_utils.stamped_model_path(artifact_utils.get_single_uri(checked)))
        return str(super().GetModelPath(input_dict))


def _record_candidate(pushed: types.Artifact, directory: str, plan: PushPlan, provenance: Provenance) -> None:
    """Record in the artifact what `models approve` publishes; the artifact's folder has the model's files."""
    recorded = Candidate(
        directory=directory, plan=plan, provenance=provenance, digest=candidate.compute_digest(pushed.uri)
    )
    for name, text in {**candidate.to_properties(recorded), candidate.APPROVAL: candidate.PENDING}.items():
        pushed.set_string_custom_property(name, text)


def _copy_edge(input_dict: dict[str, list[types.Artifact]], folder: str) -> bool:
    """Copy the edge variants that passed their checks to a folder; return whether any exist."""
    if not input_dict.get("edge"):
        return False
    passed = f"{artifact_utils.get_single_uri(input_dict['edge'])}/{PASSED}"
    if not fileio.exists(passed):
        return False
    io_utils.copy_dir(passed, folder)
    return True
