"""The executor of the data gate, which logs the findings and stops the run if the config says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from components.base.errors import GateError, MachineError
from components.data import image_statistics
from components.data_gate.findings import Finding, anomalies, label, near_duplicates, rows
from components.data_gate.plan import GatePlan


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """An executor that checks the outputs of StatisticsGen and ExampleValidator."""

    def Do(self, input_dict: dict[str, Any], output_dict: dict[str, Any], exec_properties: dict[str, Any]) -> None:  # noqa: N802
        """Run the gate.

        Args:
          input_dict: The keys `statistics` and `anomalies`, with one artifact per key.
          output_dict: The key `report`. Its artifact receives the action and the findings as JSON.
          exec_properties: The key `plan`, a GatePlan as JSON.

        Raises:
          GateError: There are findings and the action is `stop`.
        """
        plan = GatePlan.model_validate_json(exec_properties["plan"])
        findings = list(_findings(plan, input_dict))
        for finding in findings:
            logging.warning("data gate: %s", finding.line)
        if findings and plan.validation.action == "stop":
            raise GateError(
                f"the data gate stops the run: {len(findings)} finding{'s' if len(findings) > 1 else ''} in the data",
                f"{findings[0].remedy}; or set validation.action to warn, to continue in spite of findings",
                [finding.line for finding in findings],
            )
        report = artifact_utils.get_single_instance(output_dict["report"])
        report.value = {"action": plan.validation.action, "findings": [finding.line for finding in findings]}


def _findings(plan: GatePlan, inputs: dict[str, list[types.Artifact]]) -> Iterator[Finding]:
    statistics = artifact_utils.get_single_instance(inputs["statistics"])
    for split in artifact_utils.decode_split_names(statistics.split_names):
        statistics_list = statistics_pb2.DatasetFeatureStatisticsList()
        _read(f"{artifact_utils.get_split_uri([statistics], split)}/FeatureStats.pb", statistics_list)
        dataset = statistics_list.datasets[0]
        yield from rows(split, dataset, plan.validation.min_rows)
        for name in plan.labels:
            yield from label(split, dataset, name, plan.classes)
    yield from near_duplicates(image_statistics.near_duplicates(statistics.uri), plan.validation.near_duplicates)
    validated = artifact_utils.get_single_instance(inputs["anomalies"])
    for split in artifact_utils.decode_split_names(validated.split_names):
        differences = anomalies_pb2.Anomalies()
        _read(f"{artifact_utils.get_split_uri([validated], split)}/SchemaDiff.pb", differences)
        yield from anomalies(split, differences, plan.schema_path)


def _read(path: str, message: Any) -> None:
    """Read a message from a file.

    Args:
      path: Path or URL of the file.
      message: Message that is filled in.

    Raises:
      MachineError: The file is empty. Parsed as a message, it would not contain anomalies, and the data would pass. An
        intact file is never empty, because ExampleValidator also writes the schema to it.
    """
    with fileio.open(path, "rb") as file:
        content = file.read()
    if not content:
        raise MachineError(f"{path}: expected a message, received an empty file", "run again with --no-cache")
    message.ParseFromString(content)
