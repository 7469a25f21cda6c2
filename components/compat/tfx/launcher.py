"""Private parts of TFX's launcher of a node, and of its handle of a metadata store. Checked with TFX 1.16 and 1.21."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as proto
from tfx.orchestration import metadata
from tfx.orchestration.portable import launcher
from tfx.orchestration.portable.mlmd import execution_lib


class _NoWatcher:
    """Replaces the gRPC server that TFX's launcher starts for each node, to which no executor of TFX reports anything.

    Its threads would be in every node, and a process with threads is not forked safely. Hook: the name
    `execution_watcher` in the module of TFX's launcher.
    """

    address = ""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


launcher.execution_watcher = types.SimpleNamespace(ExecutionWatcher=_NoWatcher)

_WORKING_DIR_INDEX = "__stateful_working_dir_index__"


class NodeLauncher(launcher.Launcher):  # type: ignore[misc]
    """TFX's launcher, which registers a second attempt at a node as it registers the first.

    TFX reuses the execution of a failed attempt unchanged. Here it becomes RUNNING again, with the inputs and
    properties of the new attempt, so that lineage shows what was used. And the working folder that outlives a failure
    is named by the execution's id: a second attempt finds what the first one saved there.

    Hook: the private `_register_or_reuse_execution`, `_pipeline_node`, and the property with the number of the folder.

    Args:
      failed: The id of the execution of an earlier attempt at the same run.
      arguments: Those of TFX's launcher.
    """

    def __init__(self, failed: int | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._failed = failed

    def is_needed(self) -> bool:
        """Whether the node has to run; if not, its outputs are registered, those of an earlier execution.

        Hook: the private `_prepare_execution`, the first half of `launch`.
        """
        return bool(self._prepare_execution().is_execution_needed)

    def _register_or_reuse_execution(
        self,
        metadata_handle: metadata.Metadata,
        contexts: list[proto.Context],
        input_artifacts: Mapping[str, Any] | None = None,
        exec_properties: Mapping[str, Any] | None = None,
    ) -> proto.Execution:
        execution = super()._register_or_reuse_execution(metadata_handle, contexts, input_artifacts, exec_properties)
        if execution.id == self._failed:
            execution = self._restart(metadata_handle, execution, contexts, input_artifacts or {}, exec_properties)
        execution.custom_properties[_WORKING_DIR_INDEX].string_value = str(execution.id)
        return execution

    def _restart(
        self,
        handle: metadata.Metadata,
        failed: proto.Execution,
        contexts: list[proto.Context],
        inputs: Mapping[str, Any],
        properties: Mapping[str, Any] | None,
    ) -> proto.Execution:
        node_type, running = self._pipeline_node.node_info.type, proto.Execution.RUNNING
        execution = execution_lib.prepare_execution(handle, node_type, running, properties, execution_name=failed.name)
        execution.id = failed.id
        linked = {event.artifact_id for event in handle.store.get_events_by_execution_ids([failed.id])}
        added = {
            key: [artifact for artifact in artifacts if artifact.id not in linked] for key, artifacts in inputs.items()
        }
        return execution_lib.put_execution(handle, execution, contexts, input_artifacts=added)


class Metadata(metadata.Metadata):  # type: ignore[misc]
    """TFX's handle of a metadata store, on a connection that `connect` opens.

    Hook: TFX's handle opens its own connection in `__enter__`, and keeps it in `_store`, with `_users`, its number of
    users.
    """

    def __init__(self, config: proto.ConnectionConfig, connect: Callable[[], MetadataStore]) -> None:
        super().__init__(config)
        self._connect = connect

    def __enter__(self) -> Metadata:
        self._store = self._connect()
        self._users += 1
        return self
