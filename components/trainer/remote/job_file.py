"""The job file: the Trainer's inputs, outputs and parameters as JSON, for tasks that TFX's launcher does not start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx.types import artifact_utils

Artifacts = dict[str, list[Any]]


def write(inputs: Artifacts, outputs: Artifacts, exec_properties: Mapping[str, Any]) -> str:
    """Return the content of a job file, which is the same text for the same arguments.

    Args:
      inputs: Inputs of the Trainer, by key.
      outputs: Outputs of the Trainer, by key.
      exec_properties: Parameters of the Trainer: strings, numbers or None.
    """
    job = {"inputs": _to_json(inputs), "outputs": _to_json(outputs), "exec_properties": dict(exec_properties)}
    return json.dumps(job, indent=1, sort_keys=True)


def read(text: str) -> tuple[Artifacts, Artifacts, dict[str, Any]]:
    """Return the inputs, outputs and parameters of a job file.

    Args:
      text: Text from `write`.
    """
    job = json.loads(text)
    inputs, outputs = (artifact_utils.parse_artifact_dict(job[key]) for key in ("inputs", "outputs"))
    return inputs, outputs, job["exec_properties"]


def _to_json(artifacts: Artifacts) -> str:
    """Return the artifacts as TFX's JSON with sorted keys, because protobuf does not define the order of properties."""
    return json.dumps(json.loads(artifact_utils.jsonify_artifact_dict(artifacts)), sort_keys=True)
