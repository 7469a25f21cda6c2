"""Monitor's driver, which finds the pushed versions and the newest requests.

It runs before TFX looks up the node's result in the cache, so that new requests lead to a new result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tfx.dsl.components.base.base_driver import BaseDriver
from tfx.proto.orchestration import driver_output_pb2

from components.base.errors import InputError
from components.data import file_io
from components.monitor import labels, monitoring
from components.monitor.plan import MonitorPlan

VERSIONS, FINGERPRINT = "versions", "fingerprint"
_MAX_VERSIONS = 50
"""Number of newest pushed versions that are monitored."""


class Driver(BaseDriver):  # type: ignore[misc]
    """Adds two parameters: `versions` as JSON, and `fingerprint`, which changes with the requests and labels."""

    def run(self, execution_info: Any) -> driver_output_pb2.DriverOutput:
        """Find the pushed versions, and compute the fingerprint of the requests and labels.

        Args:
          execution_info: TFX's ExecutionInfo, whose `exec_properties` contain `plan` and `pushed`.

        Returns:
          The two parameters, which TFX adds to the execution.
        """
        properties = execution_info.exec_properties
        plan = MonitorPlan.model_validate_json(properties["plan"])
        result = driver_output_pb2.DriverOutput()
        with self._metadata_handle as handle:
            versions = dict(sorted(_find_versions(handle.store, properties["pushed"]), reverse=True)[:_MAX_VERSIONS])
        result.exec_properties[VERSIONS].string_value = json.dumps(versions)
        result.exec_properties[FINGERPRINT].string_value = _compute_fingerprint(plan)
        return result


def _find_versions(store: Any, pushed: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yield the versions that were pushed to a folder, as ML Metadata records them.

    Args:
      store: ML Metadata's store.
      pushed: Push folder.

    Yields:
      Number of a version, and its URIs: `model`, the copy among the artifacts; `pushed`, the version in the push
      folder; `examples`; and `evaluation`, which is None for a run without an Evaluator.
    """
    artifacts = {
        artifact.id: artifact
        for artifact in store.get_artifacts_by_type("PushedModel")
        if _read_property(artifact, "pushed_destination").rpartition("/")[0] == pushed.rstrip("/")
    }
    pushers = {
        event.execution_id: artifacts[event.artifact_id]
        for event in store.get_events_by_artifact_ids(list(artifacts))
        if _type_of_event(event) == "OUTPUT"
    }
    if not pushers:
        return
    inputs: dict[int, dict[str, int]] = {}
    for event in store.get_events_by_execution_ids(list(pushers)):
        if _type_of_event(event) == "INPUT":
            inputs.setdefault(event.execution_id, {})[event.path.steps[0].key] = event.artifact_id
    input_ids = sorted({artifact_id for ids_by_key in inputs.values() for artifact_id in ids_by_key.values()})
    uris = {artifact.id: artifact.uri for artifact in store.get_artifacts_by_id(input_ids)}
    for execution_id, artifact in pushers.items():
        input_uris = {key: uris[artifact_id] for key, artifact_id in inputs.get(execution_id, {}).items()}
        # Without its training rows, a version cannot be compared.
        if "examples" in input_uris:
            version = {
                "model": artifact.uri,
                "pushed": _read_property(artifact, "pushed_destination"),
                "examples": input_uris["examples"],
                "evaluation": input_uris.get("evaluation"),
            }
            yield int(_read_property(artifact, "pushed_version")), version


def _type_of_event(event: Any) -> str:
    return str(type(event).Type.Name(event.type))


def _read_property(artifact: Any, name: str) -> str:
    return str(artifact.custom_properties[name].string_value) if name in artifact.custom_properties else ""


def _compute_fingerprint(plan: MonitorPlan) -> str:
    """Return a digest of the files of requests and labels: their names, sizes and modification times."""
    try:
        requests = sorted({path for window in monitoring.find_windows(plan) for path in window})
    except InputError:
        requests = []
    paths = [*requests, *(labels.list_files(plan.labels) if plan.labels else ())]
    return hashlib.sha256("\n".join(_describe_files(paths)).encode()).hexdigest()


def _describe_files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        # The server may rename the file that it is writing to its final name after the files were listed.
        with contextlib.suppress(FileNotFoundError):
            # Not `tf.io.gfile.stat`, which returns whole seconds for a local file: a file can change within a second.
            size, nanoseconds = file_io.stat(path)
            yield f"{path} {size} {nanoseconds}"
