"""TFMA's config: the metrics, slices and outputs that TFMA's files and both evaluations are made by."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.base.config_section import Task
from components.evaluator import calibration, constant, plot_metrics
from components.evaluator.config import RATES, EvaluationConfig, Metric, metric, slice_of
from components.evaluator.gate import PREVALENCE
from components.evaluator.plan import EvaluationPlan

_DIAGNOSTICS = "diagnostics"
_AT = 0.5
"""TFMA's threshold of metrics without one."""
_THRESHOLDS = {
    **dict.fromkeys(("Precision", "Recall", "F1Score", *RATES.values()), "thresholds"),
    "BinaryAccuracy": "threshold",
}
"""TFMA's class of a metric → the option with the probability from which on a prediction is positive."""


def eval_config(
    plan: EvaluationPlan, label_key: str, preprocessing: tuple[str, ...], prediction_key: str | None
) -> tfma.EvalConfig:
    """Convert the `evaluation` section to TFMA's config, without thresholds, which the gate checks."""
    config, task = plan.evaluation, plan.task
    count = tfma.MetricConfig(class_name="ExampleCount")
    metrics = [] if plan.weight else [count]
    # Metrics have the config's names: TFMA's name of `accuracy` is sparse_categorical_accuracy.
    chosen = {name: metric(name, task) for name in config.metrics_for(task, plan.metrics_of_loss)}
    metrics += [
        _metric(each.tfma_class, each.module, name=name, **each.options, **_of_quantiles(each, plan))
        for name, each in chosen.items()
    ]
    if any(each.both_classes for each in chosen.values()):
        metrics.append(_metric("HistogramPrevalence", calibration.__name__, name=PREVALENCE))
    if config.fairness:
        metrics += [_metric(made, "", name=rate, thresholds=[config.fairness.at]) for rate, made in RATES.items()]
    of_loss = {"of_loss": plan.metrics_of_loss[0], "quantiles": plan.quantiles} if plan.metrics_of_loss else {}
    metrics.append(_metric("ConstantComparison", constant.__name__, name="constant", task=task, **of_loss))
    # Metrics of groups compute their own intervals.
    of_rows = [name for name, each in chosen.items() if not each.grouped]
    at = {"rates_at": config.fairness.at} if config.fairness else {}
    metrics += _diagnostics(task, [*of_rows, *(RATES if config.fairness else ())], **at)
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=label_key,
                prediction_key=prediction_key or "",
                preprocessing_function_names=list(preprocessing),
                example_weight_key=plan.weight or "",
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *_slices(config)],
        metrics_specs=[
            # The number of rows, which decides whether a slice is judged, is not weighted.
            *([tfma.MetricsSpec(metrics=[count], example_weights={"unweighted": True})] if plan.weight else []),
            tfma.MetricsSpec(metrics=metrics),
        ],
    )


def at_least(config: tfma.EvalConfig) -> tfma.EvalConfig:
    """Return the config for TFMA's own combiners, in which predictions of exactly a threshold are positive.

    TFMA counts predictions above a threshold. Predictions are float32, so those above the number before the threshold
    are those of at least the threshold. Our columnar form needs no such change.
    """
    changed = tfma.EvalConfig()
    changed.CopyFrom(config)
    for each in (chosen for spec in changed.metrics_specs for chosen in spec.metrics):
        if not each.module and each.class_name in _THRESHOLDS:
            options = json.loads(each.config or "{}")
            option = _THRESHOLDS[each.class_name]
            at = np.float32(np.ravel(options.get(option, _AT))[0])
            options[option] = float(np.nextafter(at, np.float32(-np.inf)))
            each.config = json.dumps(options)
    return changed


def _of_quantiles(of: Metric, plan: EvaluationPlan) -> dict[str, Any]:
    """Return the argument of a metric that reads the quantiles that the model predicts."""
    return {"quantiles": plan.quantiles} if of.quantiles or of.options.get("quantile") in plan.quantiles else {}


def _diagnostics(task: Task, names: list[str], **rates_at: float) -> list[tfma.MetricConfig]:
    """Return the metrics that compute plots and intervals; those of a retrieval compute their own intervals."""
    ours = plot_metrics.__name__
    if task == "binary":
        return [_metric("BinaryDiagnostics", ours, name=_DIAGNOSTICS, metrics=names, **rates_at)]
    if task == "regression":
        return [_metric("RegressionDiagnostics", ours, name=_DIAGNOSTICS)]
    if task == "retrieval":
        return []
    matrix = _metric("MultiClassConfusionMatrixPlot", "", thresholds=[0.0])
    shares = {
        name: int(metric(name, task).options.get("classes", 0))
        for name in names
        if name.partition("_at_")[0] == "accuracy"
    }
    return [matrix, _metric("RateDiagnostics", ours, name=_DIAGNOSTICS, metrics=shares)]


def _metric(tfma_class: str, module: str, **options: object) -> tfma.MetricConfig:
    return tfma.MetricConfig(class_name=tfma_class, module=module, config=json.dumps(options))


def _slices(config: EvaluationConfig) -> list[tfma.SlicingSpec]:
    """Return each slice once: those of `slices`, of `slice_thresholds` and of `fairness`."""
    named = [slice_of(name) for name in config.slice_thresholds]
    columns = [*config.slices, *((column,) for column, value in named if value is None)]
    if config.fairness:
        columns.append((config.fairness.column,))
    columns = list(dict.fromkeys(columns))
    values = dict.fromkeys(each for each in named if each[1] is not None and (each[0],) not in columns)
    return [
        *(tfma.SlicingSpec(feature_keys=list(keys)) for keys in columns),
        *(tfma.SlicingSpec(feature_values={column: value}) for column, value in values),
    ]
