"""Reads what TFMA has written about a model and its baseline: each metric, of all rows and per slice."""

from __future__ import annotations

from typing import Any

import tensorflow_model_analysis as tfma

from components.evaluator.verdict import Measured

_ROWS = "example_count"
"""TFMA's name for the number of rows."""


def read(folder: str) -> list[Measured]:
    """All slices of an evaluation, the whole split among them; values may be NaN.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    found = []
    for record in tfma.load_metrics(folder):
        metrics: dict[str, float] = {}
        baseline: dict[str, float] = {}
        for each in record.metric_keys_and_values:
            value = _scalar(each.value)
            if value is not None and not each.key.is_diff:
                of = baseline if each.key.model_name == tfma.BASELINE_KEY else metrics
                of[_name(each.key)] = value
        baseline.pop(_ROWS, None)
        found.append(Measured(_slice(record.slice_key), int(metrics.pop(_ROWS, 0)), metrics, baseline))
    return found


def _name(key: Any) -> str:
    """A metric's name, with what tells it from its sisters in a model of several outputs or classes."""
    parts = [key.output_name, key.name]
    if key.HasField("sub_key"):
        sub = key.sub_key
        parts += [f"{field.name} {value.value}" for field, value in sub.ListFields() if hasattr(value, "value")]
    return " ".join(part for part in parts if part)


def _slice(key: Any) -> dict[str, str]:
    return {each.column: _slice_value(each) for each in key.single_slice_keys}


def _slice_value(key: Any) -> str:
    kind = key.WhichOneof("kind")
    value = getattr(key, kind)
    return value.decode(errors="replace") if isinstance(value, bytes) else f"{value:g}"


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("type")
    if kind == "double_value":
        return float(value.double_value.value)
    if kind == "bounded_value":
        return float(value.bounded_value.value.value)
    return None
