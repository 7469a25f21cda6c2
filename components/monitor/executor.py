"""Monitor's executor: write the result, and stop the run on findings if `monitor.findings` is `refuse`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils

from components.base.errors import GateError, InputError
from components.base.files import is_remote
from components.data import file_io, request_log
from components.monitor import monitoring
from components.monitor.driver import VERSIONS
from components.monitor.monitoring import Version
from components.monitor.plan import MonitorPlan
from components.monitor.result import Monitoring
from components.pusher.remote_folder import FileioFolder
from components.results import version_manifest


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """Monitors the versions that the driver found."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Compare requests with training rows and labels.

        Args:
          input_dict: Not used.
          output_dict: `monitoring` is set to a Monitoring as JSON, which is empty until a version answers requests.
          exec_properties: `plan`, a MonitorPlan as JSON, and `versions`, the JSON that the driver added.

        Raises:
          GateError: If there are findings, and `monitor.findings` is `refuse`.
          InputError: If the labels cannot be read or do not match the requests.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        plan = MonitorPlan.model_validate_json(exec_properties["plan"])
        result = _monitor(plan, _load_versions(json.loads(exec_properties[VERSIONS])))
        findings = list(result.findings())
        for line in findings:
            logging.warning("monitor: %s", line)
        if findings and plan.monitor.findings == "refuse":
            raise GateError(
                f"monitoring stops the run: {len(findings)} finding{'s' if len(findings) > 1 else ''} in the requests",
                "find out why the requests changed; or set monitor.findings to warn, to continue in spite of findings",
                findings,
            )
        artifact_utils.get_single_instance(output_dict["monitoring"]).value = result.to_dict()


def _monitor(plan: MonitorPlan, versions: Mapping[int, Version]) -> Monitoring:
    try:
        request_log.files(plan.monitor.requests)
    except InputError as error:
        # The first runs of a pipeline end before any version has answered a request.
        logging.warning("%s", error.headline)
        return Monitoring()
    result = monitoring.monitor(versions, plan)
    if not result.judgements:
        logging.warning("no version of the push folder has answered a request in the window")
    return result


def _load_versions(uris_by_version: Mapping[str, Mapping[str, str | None]]) -> dict[int, Version]:
    """Return the versions whose model and training rows still exist.

    Args:
      uris_by_version: Number of a version as text → its URIs, as the driver writes them.

    Raises:
      InputError: If a model differs from the manifest of the pushed version.
    """
    versions = {}
    for number, uris in uris_by_version.items():
        model, examples = str(uris["model"]), monitoring.list_example_files(str(uris["examples"]))
        if examples and file_io.file_system(model).exists(file_io.join(model, "saved_model.pb")):
            _verify_model(model, uris["pushed"])
            versions[int(number)] = Version(model, examples, uris["evaluation"])
        else:
            logging.warning("version %s is not monitored: its model or its training rows were deleted", number)
    return versions


def _verify_model(model: str, pushed: str | None) -> None:
    """Compare the files of a model with the manifest of the pushed version; log a warning if the version was removed.

    Args:
      model: Folder of the copy among the artifacts.
      pushed: Folder of the version in the push folder.

    Raises:
      InputError: If a file differs.
    """
    try:
        manifest = version_manifest.read(_open_folder(str(pushed)))
    except InputError:
        logging.warning("%s cannot be verified: the manifest of version %s cannot be read", model, pushed)
        return
    version_manifest.check_files(_open_folder(model), manifest.files)


def _open_folder(path: str) -> version_manifest.Folder:
    return FileioFolder(path) if is_remote(path) else version_manifest.LocalFolder(path)
