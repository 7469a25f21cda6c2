"""What the DataGate node does: every finding becomes a line with split, feature, value, threshold and remedy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from components.data_gate.findings import Finding, anomalies, label, rows
from components.data_gate.plan import GatePlan
from components.errors import GateError


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """Reads what StatisticsGen and ExampleValidator found, and decides."""

    def Do(self, input_dict: dict[str, Any], output_dict: dict[str, Any], exec_properties: dict[str, Any]) -> None:  # noqa: N802
        """Runs the gate.

        Args:
          input_dict: `statistics` and `anomalies`, one artifact each.
          output_dict: `report`: JSON with the action and the findings.
          exec_properties: `plan`, a GatePlan as JSON.

        Raises:
          GateError: there are findings and the action is `stop`.
        """
        plan = GatePlan.model_validate_json(exec_properties["plan"])
        found = list(_findings(plan, input_dict))
        for finding in found:
            logging.warning("data gate: %s", finding.line)
        if found and plan.validation.action == "stop":
            raise GateError(
                f"the data gate stops the run: {len(found)} finding{'s' if len(found) > 1 else ''} in the data",
                f"{found[0].remedy}; or set validation.action to warn to go on all the same",
                [finding.line for finding in found],
            )
        report = artifact_utils.get_single_instance(output_dict["report"])
        report.value = {"action": plan.validation.action, "findings": [finding.line for finding in found]}


def _findings(plan: GatePlan, inputs: dict[str, Any]) -> Iterator[Finding]:
    statistics = artifact_utils.get_single_instance(inputs["statistics"])
    for split in artifact_utils.decode_split_names(statistics.split_names):
        path = f"{artifact_utils.get_split_uri([statistics], split)}/FeatureStats.pb"
        dataset: statistics_pb2.DatasetFeatureStatistics = tfdv.load_stats_binary(path).datasets[0]
        yield from rows(split, dataset, plan.validation.min_rows)
        if plan.label is not None:
            yield from label(split, dataset, plan.label, plan.classes)
    found = artifact_utils.get_single_instance(inputs["anomalies"])
    for split in artifact_utils.decode_split_names(found.split_names):
        path = f"{artifact_utils.get_split_uri([found], split)}/SchemaDiff.pb"
        with fileio.open(path, "rb") as file:
            yield from anomalies(split, anomalies_pb2.Anomalies.FromString(file.read()), plan.schema_path)
