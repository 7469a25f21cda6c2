"""The provenance of a version: collected from the node's context, the evaluation and the examples."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime, timezone
from typing import Any

import tensorflow as tf
from tfx import types
from tfx import version as tfx_version
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from components import recorded_config
from components.version_manifest import Provenance, spans

VERDICT = "verdict.json"
_RUN_CONTEXT = "pipeline_run"


def provenance(inputs: dict[str, list[types.Artifact]], context: BaseExecutor.Context | None) -> Provenance:
    """Collects the provenance, with version 0, since the number is not known before the push.

    Args:
      inputs: the Pusher's inputs.
      context: the executor's context; None outside of a run.
    """
    verdict = _verdict(inputs)
    return Provenance(
        pipeline=context.pipeline_info.id if context else "",
        version=0,
        run=context.pipeline_run_id if context else "",
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        spans=_spans(inputs),
        metrics=_metrics(verdict),
        blessed_by=_blessed_by(inputs, verdict),
        config_digest=_config_digest(context),
        tfx=tfx_version.__version__,
        tensorflow=tf.version.VERSION,
    )


def _verdict(inputs: dict[str, list[types.Artifact]]) -> dict[str, Any]:
    """Reads the content of the Evaluator's verdict.json; a stock Evaluator writes no such file."""
    if not inputs.get("evaluation"):
        return {}
    path = f"{artifact_utils.get_single_uri(inputs['evaluation'])}/{VERDICT}"
    if not fileio.exists(path):
        return {}
    with fileio.open(path, "rb") as file:
        return dict(json.loads(file.read()))


def _metrics(verdict: dict[str, Any]) -> dict[str, float]:
    """Returns the metrics of all rows; values that are not finite are left out, since JSON cannot represent them."""
    return {
        name: float(value)
        for each in verdict.get("slices", ())
        if not each["slice"]
        for name, value in sorted(each["metrics"].items())
        if value is not None and math.isfinite(value)
    }


def _blessed_by(inputs: dict[str, list[types.Artifact]], verdict: dict[str, Any]) -> str:
    if reason := verdict.get("forced"):
        return f"forced: {reason}"
    return "thresholds" if inputs.get("model_blessing") else "nobody"


def _spans(inputs: dict[str, list[types.Artifact]]) -> tuple[int, ...]:
    if not inputs.get("examples"):
        return ()
    examples = artifact_utils.get_single_instance(inputs["examples"])
    return spans(examples.get_string_custom_property("input_fingerprint"), int(examples.span or 0))


def _config_digest(context: BaseExecutor.Context | None) -> str:
    """Computes the digest of the config.

    The config comes from the run's context: as a parameter of the node, any change of it would push the model again.
    """
    for each in context.pipeline_node.contexts.contexts if context else ():
        if each.type.name == _RUN_CONTEXT:
            texts = {name: value.field_value.string_value for name, value in each.properties.items()}
            if config := recorded_config.joined(texts):
                return hashlib.sha256(config.encode()).hexdigest()
    return ""
