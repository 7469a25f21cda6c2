"""The job file: what the tasks of a job do, as JSON, because TFX's launcher does not start them.

It contains the Trainer's inputs, outputs and parameters, or a function of another node and its arguments.
"""

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


def write_call(function: str, arguments: Mapping[str, Any]) -> str:
    """Return the content of a job file whose task calls a function.

    Args:
      function: Import path of the function, as `module:name`.
      arguments: Keyword arguments of the function, JSON values.
    """
    return json.dumps({"function": function, "arguments": dict(arguments)}, indent=1, sort_keys=True)


def read_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return the function and the arguments of `write_call`; None if the text is from `write`.

    Args:
      text: Content of a job file.
    """
    job = json.loads(text)
    return (job["function"], job["arguments"]) if "function" in job else None


def _to_json(artifacts: Artifacts) -> str:
    """Return the artifacts as TFX's JSON with sorted keys, because protobuf does not define the order of properties."""
    return json.dumps(json.loads(artifact_utils.jsonify_artifact_dict(artifacts)), sort_keys=True)
