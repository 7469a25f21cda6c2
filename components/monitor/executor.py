"""Monitor's executor: writes what was found, and stops the run only if the config says so."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils

from components import version_manifest
from components.data import file_io
from components.errors import GateError, InputError
from components.files import is_remote
from components.monitor import monitoring, request_log
from components.monitor.driver import VERSIONS
from components.monitor.monitoring import Version
from components.monitor.plan import MonitorPlan
from components.monitor.result import Monitoring
from components.pusher.remote_folder import FileioFolder


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """Monitors the versions that the driver has found."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Compares requests with training rows and labels.

        Args:
          input_dict: not used.
          output_dict: `monitoring`: JSON, a Monitoring; empty as long as no version has answered.
          exec_properties: `plan`, a MonitorPlan as JSON; `versions`, as the driver has found them.

        Raises:
          GateError: there are findings, and `monitor.findings` is `refuse`.
          InputError: the labels do not fit.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        plan = MonitorPlan.model_validate_json(exec_properties["plan"])
        result = _monitored(plan, _existing(json.loads(exec_properties[VERSIONS])))
        findings = list(result.findings())
        for line in findings:
            logging.warning("monitor: %s", line)
        if findings and plan.monitor.findings == "refuse":
            raise GateError(
                f"monitoring stops the run: {len(findings)} finding{'s' if len(findings) > 1 else ''} in the requests",
                "see why the requests have changed; or set monitor.findings to warn, to continue in spite of findings",
                findings,
            )
        artifact_utils.get_single_instance(output_dict["monitoring"]).value = result.to_dict()


def _monitored(plan: MonitorPlan, versions: Mapping[int, Version]) -> Monitoring:
    try:
        request_log.files(plan.monitor.requests)
    except InputError as error:
        # Before the first version serves, there are none.
        logging.warning("%s", error.headline)
        return Monitoring()
    result = monitoring.monitor(versions, plan)
    if not result.judgements:
        logging.warning("no version of the push folder has answered a request in the window")
    return result


def _existing(described: Mapping[str, Mapping[str, str | None]]) -> dict[int, Version]:
    """Return the versions whose model and training rows have not been deleted.

    Raises:
      InputError: the model differs from the manifest of the pushed version.
    """
    versions = {}
    for number, each in described.items():
        model, examples = str(each["model"]), monitoring.example_files(str(each["examples"]))
        if examples and file_io.file_system(model).exists(file_io.join(model, "saved_model.pb")):
            _verify(model, each["pushed"])
            versions[int(number)] = Version(model, examples, each["evaluation"])
        else:
            logging.warning("version %s is not monitored: its model or its training rows were deleted", number)
    return versions


def _verify(model: str, pushed: str | None) -> None:
    """Compare the copy of a pushed model in the artifacts with the manifest of the version, unless that was removed."""
    try:
        manifest = version_manifest.read(_folder(str(pushed)))
    except InputError:
        logging.warning("%s cannot be verified: the manifest of version %s cannot be read", model, pushed)
        return
    version_manifest.check_files(_folder(model), manifest.files)


def _folder(path: str) -> version_manifest.Folder:
    return FileioFolder(path) if is_remote(path) else version_manifest.LocalFolder(path)
