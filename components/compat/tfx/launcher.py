"""Private parts of TFX's node launcher and of its metadata handle. Checked with TFX 1.16 and 1.21."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as proto
from tfx.orchestration import metadata
from tfx.orchestration.portable import cache_utils, launcher
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.types import artifact_utils


class _NoWatcher:
    """Replaces the gRPC server that TFX's launcher starts for every node.

    TFX's executors do not report anything to this server. Its threads would run in every node, and a process with
    threads cannot be forked safely. Hook: the name `execution_watcher` in the module of TFX's launcher.
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


class Copies(Protocol):
    """Copies artifacts between an object store and this machine."""

    def to_url(self, text: str) -> str:
        """Return the URL of an artifact with this path on this machine; other texts are returned unchanged."""

    def exists(self, path: str) -> bool:
        """Return whether the object store has the artifact with this path on this machine."""

    def download(self, path: str) -> None:
        """Copy an artifact to a path of this machine, unless it is there."""

    def upload(self, path: str) -> None:
        """Copy an artifact from a path of this machine."""


class NodeLauncher(launcher.Launcher):  # type: ignore[misc]
    """TFX's launcher, which registers a second attempt at a node in the same way as the first attempt.

    TFX reuses the execution of a failed attempt unchanged. Here the execution becomes RUNNING again, with the inputs
    and properties of the new attempt, so that the lineage shows the artifacts that were really used. The stateful
    working folder, which is kept after a failure, is named after the ID of the execution. A second attempt therefore
    finds the files that the first attempt saved there.

    Hooks: the private `_register_or_reuse_execution` and `_pipeline_node`, and the execution property with the index of
    the stateful working folder.

    If the artifacts are in an object store that the node cannot open, the launcher copies the inputs before it runs the
    node, and the outputs before it registers them. Hook: the private `_run_executor`. The outputs of an earlier
    execution are reused if the object store has them. Hook: the private `_prepare_execution`; see `_caching_by_url`.

    Args:
      failed: ID of the execution of a failed attempt in the same run. None if this is the first attempt.
      copies: Copies artifacts. None if the node opens the artifacts where they are.
      arguments: Arguments of TFX's launcher.
    """

    def __init__(self, failed: int | None, copies: Copies | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._failed = failed
        self._copies = copies

    def _prepare_execution(self) -> Any:
        with contextlib.nullcontext() if self._copies is None else _caching_by_url(self._copies):
            return super()._prepare_execution()

    def _run_executor(self, execution_info: Any) -> Any:
        if self._copies is None:
            return super()._run_executor(execution_info)
        for uri in _list_uris(execution_info.input_dict):
            self._copies.download(uri)
        output = super()._run_executor(execution_info)
        for uri in _list_uris(execution_info.output_dict):
            self._copies.upload(uri)
        return output

    def is_needed(self) -> bool:
        """Return whether the node has to run. Otherwise, register the outputs of an earlier execution as its outputs.

        Hook: the private `_prepare_execution`, which is the first half of `launch`.
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


@contextlib.contextmanager
def _caching_by_url(copies: Copies) -> Iterator[None]:
    """Make TFX's cache independent of the folder and the copies of this machine.

    The keys of the cache contain the URLs of the inputs, and cached outputs are looked for at their URLs.

    Hooks: `get_cache_context` of TFX's module `cache_utils`, as the launcher calls it, and `verify_artifacts`, as
    `cache_utils` calls it.
    """

    def make_context(*, input_artifacts: Mapping[str, Iterable[Any]], **arguments: Any) -> proto.Context:
        inputs = copy.deepcopy({key: list(artifacts) for key, artifacts in input_artifacts.items()})
        for artifacts in inputs.values():
            for artifact in artifacts:
                _relocate(artifact.mlmd_artifact, copies.to_url)
        return original_context(input_artifacts=inputs, **arguments)

    def verify(artifacts: Mapping[str, Iterable[Any]]) -> None:
        missing = [uri for uri in _list_uris(artifacts) if not copies.exists(uri)]
        if missing:
            # TFX catches this class, and looks for an older execution.
            raise RuntimeError(f"artifacts are missing: {', '.join(missing)}")

    original_context, original_verify = cache_utils.get_cache_context, artifact_utils.verify_artifacts
    cache_utils.get_cache_context, artifact_utils.verify_artifacts = make_context, verify
    try:
        yield
    finally:
        cache_utils.get_cache_context, artifact_utils.verify_artifacts = original_context, original_verify


def _relocate(artifact: proto.Artifact, relocate: Callable[[str], str]) -> None:
    """Replace the URI of an artifact and all texts among its properties, such as a blessing's `current_model`."""
    artifact.uri = relocate(artifact.uri)
    for properties in (artifact.properties, artifact.custom_properties):
        for value in properties.values():
            if value.HasField("string_value"):
                value.string_value = relocate(value.string_value)


def _list_uris(artifacts: Mapping[str, Iterable[Any]]) -> list[str]:
    return [artifact.uri for artifacts_of_key in artifacts.values() for artifact in artifacts_of_key]


class Metadata(metadata.Metadata):  # type: ignore[misc]
    """TFX's metadata handle with a custom function that opens the connection.

    Hook: TFX's handle opens the connection in `__enter__`. It keeps the connection in `_store` and the number of its
    users in `_users`.

    Args:
      config: Connection config of the metadata store.
      connect: Function that opens the store.
    """

    def __init__(self, config: proto.ConnectionConfig, connect: Callable[[], MetadataStore]) -> None:
        super().__init__(config)
        self._connect = connect

    def __enter__(self) -> Metadata:
        self._store = self._connect()
        self._users += 1
        return self
