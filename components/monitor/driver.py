"""Monitor's driver: finds the pushed versions and the newest requests, before the result is looked up in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tfx.dsl.components.base.base_driver import BaseDriver
from tfx.proto.orchestration import driver_output_pb2

from components.data import file_io
from components.errors import InputError
from components.monitor import labels, monitoring
from components.monitor.plan import MonitorPlan

VERSIONS, FINGERPRINT = "versions", "fingerprint"
_NEWEST = 50
"""Number of pushed versions that may have answered."""


class Driver(BaseDriver):  # type: ignore[misc]
    """Sets the parameters `versions`, as JSON, and `fingerprint`, which changes with the requests and the labels."""

    def run(self, execution_info: Any) -> driver_output_pb2.DriverOutput:
        """Finds versions and files.

        Args:
          execution_info: TFX's, with `plan` and `pushed`.
        """
        properties = execution_info.exec_properties
        plan = MonitorPlan.model_validate_json(properties["plan"])
        result = driver_output_pb2.DriverOutput()
        with self._metadata_handle as handle:
            versions = dict(sorted(_versions(handle.store, properties["pushed"]), reverse=True)[:_NEWEST])
        result.exec_properties[VERSIONS].string_value = json.dumps(versions)
        result.exec_properties[FINGERPRINT].string_value = _fingerprint(plan)
        return result


def _versions(store: Any, pushed: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yields the number of each version of a push folder, with the URIs of its model, version, examples, evaluation."""
    artifacts = {
        artifact.id: artifact
        for artifact in store.get_artifacts_by_type("PushedModel")
        if _text(artifact, "pushed_destination").rpartition("/")[0] == pushed.rstrip("/")
    }
    pushers = {
        event.execution_id: artifacts[event.artifact_id]
        for event in store.get_events_by_artifact_ids(list(artifacts))
        if _kind(event) == "OUTPUT"
    }
    if not pushers:
        return
    inputs: dict[int, dict[str, int]] = {}
    for event in store.get_events_by_execution_ids(list(pushers)):
        if _kind(event) == "INPUT":
            inputs.setdefault(event.execution_id, {})[event.path.steps[0].key] = event.artifact_id
    used = store.get_artifacts_by_id(sorted({number for each in inputs.values() for number in each.values()}))
    uris = {artifact.id: artifact.uri for artifact in used}
    for execution, artifact in pushers.items():
        of_input = {key: uris[number] for key, number in inputs.get(execution, {}).items()}
        if "examples" in of_input:
            destination = _text(artifact, "pushed_destination")
            version = {
                "model": artifact.uri,
                "pushed": destination,
                **{key: of_input.get(key) for key in ("examples", "evaluation")},
            }
            yield int(_text(artifact, "pushed_version")), version


def _kind(event: Any) -> str:
    return str(type(event).Type.Name(event.type))


def _text(artifact: Any, name: str) -> str:
    return str(artifact.custom_properties[name].string_value) if name in artifact.custom_properties else ""


def _fingerprint(plan: MonitorPlan) -> str:
    """A digest of the requests in the windows and of the labels: names, sizes and times of the files."""
    try:
        requests = sorted({path for window in monitoring.windows(plan) for path in window})
    except InputError:
        requests = []
    paths = [*requests, *(labels.files(plan.labels) if plan.labels else ())]
    return hashlib.sha256("\n".join(_described(paths)).encode()).hexdigest()


def _described(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        # The file that the server is writing may get its final name meanwhile.
        with contextlib.suppress(FileNotFoundError):
            # TensorFlow's time of a local file is in whole seconds.
            size, nanoseconds = file_io.stat(path)
            yield f"{path} {size} {nanoseconds}"
