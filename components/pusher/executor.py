"""What the Pusher runs: TFX's own, but for a local folder a version appears in one step."""

from __future__ import annotations

import time
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, proto_utils

from components.pusher import target


class Executor(executor.Executor):  # type: ignore[misc]
    """Pushes a blessed model to a local folder atomically, and to a remote one as TFX does."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed.

        Args:
          input_dict: `model`, and `model_blessing` if there is one.
          output_dict: `pushed_model`; gets a copy of the model and the properties `pushed`, `pushed_destination`
            and `pushed_version`, as TFX's Pusher gives them.
          exec_properties: `push_destination`, a PushDestination as JSON.

        Raises:
          OSError: the model could not be copied; nothing is left of it in the push folder.
        """
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination)
        directory = destination.filesystem.base_directory
        if target.is_remote(directory):
            # An object store has no rename to make it atomic with; TFX copies saved_model.pb last.
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        model = self.GetModelPath(input_dict)
        # First the copy that stays with the run: once the version is in the push folder, nothing may fail any more.
        io_utils.copy_dir(model, pushed.uri)
        path, version = target.place(model, directory, int(time.time()))
        self._MarkPushed(pushed, pushed_destination=path, pushed_version=str(version))
