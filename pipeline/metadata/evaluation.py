"""Reads what the Evaluator measured: each metric, overall and per slice, and the thresholds that were missed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow_model_analysis as tfma

from pipeline.metadata.facts import Failure, SliceMetrics


@dataclass(frozen=True)
class Results:
    """An evaluation's numbers; empty when there was none."""

    metrics: dict[str, float] = field(default_factory=dict)
    slices: tuple[SliceMetrics, ...] = ()
    validation_ok: bool | None = None
    failures: tuple[Failure, ...] = ()


def read(folder: str) -> Results:
    """The results that TFMA wrote into a ModelEvaluation artifact's folder; only the candidate's, no baseline's."""
    measured = [SliceMetrics(*each) for each in _measured(folder)]
    overall = next((each.metrics for each in measured if not each.slice), {})
    slices = sorted((each for each in measured if each.slice), key=lambda each: sorted(each.slice.items()))
    if not any(Path(folder).glob("validations*")):
        return Results(overall, tuple(slices))
    validation = tfma.load_validation_result(folder)
    return Results(overall, tuple(slices), bool(validation.validation_ok), tuple(_failures(validation)))


def _measured(folder: str) -> list[tuple[dict[str, str], dict[str, float]]]:
    found = []
    for record in tfma.load_metrics(folder):
        values: dict[str, float] = {}
        for each in record.metric_keys_and_values:
            if each.key.model_name != tfma.BASELINE_KEY and not each.key.is_diff:
                value = _scalar(each.value)
                if value is not None:
                    values[_name(each.key)] = value
        found.append((_slice(record.slice_key), values))
    return found


def _failures(validation: Any) -> list[Failure]:
    failures = [
        Failure(_name(each.metric_key), _slice(per_slice.slice_key), _scalar(each.metric_value), _bound(each))
        for per_slice in validation.metric_validations_per_slice
        for each in per_slice.failures
    ]
    if validation.missing_thresholds:
        failures.append(Failure("thresholds", {}, None, "at least one threshold to have been checked"))
    for spec in validation.missing_slices:
        keys = dict.fromkeys(spec.feature_keys, "any value") | dict(spec.feature_values)
        failures.append(Failure("slice", keys, None, "rows of this slice in the evaluated split"))
    return failures


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


def _bound(failure: Any) -> str:
    """The missed threshold in words."""
    threshold = failure.metric_threshold
    values, change = threshold.value_threshold, threshold.change_threshold
    bounds = []
    if values.HasField("lower_bound") and math.isfinite(values.lower_bound.value):
        bounds.append(f"at least {values.lower_bound.value:g}")
    if values.HasField("upper_bound") and math.isfinite(values.upper_bound.value):
        bounds.append(f"at most {values.upper_bound.value:g}")
    # A change is measured from the baseline model, in the direction that counts as better.
    if change.HasField("absolute"):
        bounds.append(f"a change against the baseline better than {change.absolute.value:g}")
    if change.HasField("relative"):
        bounds.append(f"a relative change against the baseline better than {change.relative.value:g}")
    return " and ".join(bounds) or failure.message or "a value within its threshold"
