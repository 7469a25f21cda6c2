"""Collect the provenance of a version from the node's context, the evaluation and the examples."""

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

from components.base import recorded_config
from components.results.version_manifest import Provenance, spans

VERDICT = "verdict.json"
_RUN_CONTEXT = "pipeline_run"


def collect_provenance(inputs: dict[str, list[types.Artifact]], context: BaseExecutor.Context | None) -> Provenance:
    """Return the provenance with version 0, because the version's number is not known before the push.

    Args:
      inputs: Inputs of the Pusher.
      context: Context of the executor. None outside a run.
    """
    verdict = _read_verdict(inputs)
    return Provenance(
        pipeline=context.pipeline_info.id if context else "",
        version=0,
        run=context.pipeline_run_id if context else "",
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        spans=_read_spans(inputs),
        metrics=_read_metrics(verdict),
        blessed_by=_describe_blessing(inputs, verdict),
        config_digest=_compute_config_digest(context),
        tfx=tfx_version.__version__,
        tensorflow=tf.version.VERSION,
    )


def _read_verdict(inputs: dict[str, list[types.Artifact]]) -> dict[str, Any]:
    """Return the content of the Evaluator's verdict.json; empty for TFX's Evaluator, which does not write this file."""
    if not inputs.get("evaluation"):
        return {}
    path = f"{artifact_utils.get_single_uri(inputs['evaluation'])}/{VERDICT}"
    if not fileio.exists(path):
        return {}
    with fileio.open(path, "rb") as file:
        return dict(json.loads(file.read()))


def _read_metrics(verdict: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of all rows, without NaN and infinite values, which JSON cannot represent."""
    return {
        name: float(value)
        for slice_metrics in verdict.get("slices", ())
        if not slice_metrics["slice"]
        for name, value in sorted(slice_metrics["metrics"].items())
        if value is not None and math.isfinite(value)
    }


def _describe_blessing(inputs: dict[str, list[types.Artifact]], verdict: dict[str, Any]) -> str:
    if reason := verdict.get("forced"):
        return f"forced: {reason}"
    return "thresholds" if inputs.get("model_blessing") else "nobody"


def _read_spans(inputs: dict[str, list[types.Artifact]]) -> tuple[int, ...]:
    if not inputs.get("examples"):
        return ()
    examples = artifact_utils.get_single_instance(inputs["examples"])
    return spans(examples.get_string_custom_property("input_fingerprint"), int(examples.span or 0))


def _compute_config_digest(context: BaseExecutor.Context | None) -> str:
    """Return the SHA-256 of the run's config as a hexadecimal number; empty outside a run.

    The config is read from the context of the run. It is not a parameter of the node, because every change of the
    config would then push the model again.
    """
    for run_context in context.pipeline_node.contexts.contexts if context else ():
        if run_context.type.name == _RUN_CONTEXT:
            texts = {name: value.field_value.string_value for name, value in run_context.properties.items()}
            if config := recorded_config.join(texts):
                return hashlib.sha256(config.encode()).hexdigest()
    return ""
