"""TFMA's config: the metrics, slices and outputs that both executors evaluate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.base.config_section import Task
from components.evaluator import calibration, constant, plot_metrics
from components.evaluator.config import RATES, EvaluationConfig, Metric, label_of, metric, slice_of
from components.evaluator.gate import PREVALENCE
from components.evaluator.plan import EvaluationPlan
from components.evaluator.plot_data import AT
from components.evaluator.standard_metrics import FORMULAS
from components.features.expression import Label
from components.results.decision_goal import CostsConfig

_DIAGNOSTICS = "diagnostics"
_THRESHOLDS = {**dict.fromkeys(FORMULAS, "thresholds"), "BinaryAccuracy": "threshold"}
"""TFMA's class of a metric → the option with the threshold of positive predictions."""
_NO_DECISIONS: Mapping[str, float] = MappingProxyType({})


def eval_config(plan: EvaluationPlan, label: Label, thresholds: Mapping[str, float] = _NO_DECISIONS) -> tfma.EvalConfig:
    """Convert the `evaluation` section to TFMA's config of a label, without the bounds, which the gate checks.

    Args:
      plan: Metrics, slices and the task.
      label: The label.
      thresholds: TFMA's name of a model → the smallest probability of its decision 1, for all models or none. If it is
        empty, the metrics of decisions use 0.5.
    """
    config = plan.select_label(label)
    count = tfma.MetricConfig(class_name="ExampleCount")
    if len(set(thresholds.values())) > 1:
        specs = [
            tfma.MetricsSpec(metrics=_list_metrics(plan, label, at), model_names=[name])
            for name, at in thresholds.items()
        ]
    else:
        specs = [tfma.MetricsSpec(metrics=_list_metrics(plan, label, next(iter(thresholds.values()), AT)))]
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=label.add_name(plan.label_key),
                prediction_key=label.add_name(plan.prediction_key) if plan.prediction_key else "",
                preprocessing_function_names=list(plan.preprocessing),
                example_weight_key=plan.weight or "",
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *_slices(config)],
        metrics_specs=[
            # The number of rows, which decides whether a slice is judged, ignores weights.
            *([tfma.MetricsSpec(metrics=[count], example_weights={"unweighted": True})] if plan.weight else []),
            *specs,
        ],
    )


def _list_metrics(plan: EvaluationPlan, label: Label, at: float) -> list[tfma.MetricConfig]:
    """Return the metrics of models whose decisions have the threshold `at`."""
    config, task = plan.select_label(label), plan.task
    metrics = [] if plan.weight else [tfma.MetricConfig(class_name="ExampleCount")]
    # TFMA would call `accuracy` sparse_categorical_accuracy, so pass the names of the config.
    chosen = {name: metric(name, task) for name in config.metrics_for(task, plan.metrics_of_loss)}
    metrics += [
        _metric(
            known.tfma_class,
            known.module,
            name=name,
            **{**_make_decision_options(name, known, config, at), **known.options, **_quantiles_option(known, plan)},
        )
        for name, known in chosen.items()
    ]
    if any(known.both_classes for known in chosen.values()):
        metrics.append(_metric("HistogramPrevalence", calibration.__name__, name=PREVALENCE))
    if config.fairness:
        rates_at = config.fairness.at or at
        metrics += [_metric(tfma_class, "", name=rate, thresholds=[rates_at]) for rate, tfma_class in RATES.items()]
    options: dict[str, Any] = {}
    if plan.metrics_of_loss:
        options |= {"of_loss": plan.metrics_of_loss[0], "quantiles": plan.quantiles}
    if plan.forecasts:
        options["forecasts"] = True
    if config.decide and config.decide.cost:
        options["costs"] = _list_costs(config.decide.cost)
    metrics.append(_metric("ConstantComparison", constant.__name__, name="constant", task=task, **options))
    # Grouped metrics compute their intervals themselves.
    row_metrics = [name for name, known in chosen.items() if not known.grouped]
    positive = {"at": at} if at != AT else {}
    positive |= {"rates_at": config.fairness.at or at} if config.fairness else {}
    return metrics + _diagnostics(task, [*row_metrics, *(RATES if config.fairness else ())], **positive)


def _make_decision_options(name: str, known: Metric, config: EvaluationConfig, at: float) -> dict[str, Any]:
    """Return the options of a metric of decisions: the threshold unless it is 0.5, and the costs."""
    if label_of(name)[1] == "cost" and config.decide and config.decide.cost:
        return {"costs": _list_costs(config.decide.cost), "threshold": at}
    option = None if known.module else _THRESHOLDS.get(known.tfma_class)
    return {option: at} if option and at != AT else {}


def _list_costs(costs: CostsConfig) -> list[float]:
    return [costs.fp, costs.fn]


def at_least(config: tfma.EvalConfig) -> tfma.EvalConfig:
    """Lower all thresholds, so that TFMA's combiners count a prediction of exactly the threshold as positive.

    TFMA counts predictions above a threshold. Predictions are float32, so that "above the preceding float32" means "at
    least the threshold". The columnar forms of these metrics do not use this config.
    """
    changed = tfma.EvalConfig()
    changed.CopyFrom(config)
    for entry in (entry for spec in changed.metrics_specs for entry in spec.metrics):
        if not entry.module and entry.class_name in _THRESHOLDS:
            options = json.loads(entry.config or "{}")
            option = _THRESHOLDS[entry.class_name]
            at = np.float32(np.ravel(options.get(option, AT))[0])
            options[option] = float(np.nextafter(at, np.float32(-np.inf)))
            entry.config = json.dumps(options)
    return changed


def _quantiles_option(known: Metric, plan: EvaluationPlan) -> dict[str, Any]:
    """Return the option of a metric that reads the quantiles that the model predicts; empty for other metrics."""
    has_option = known.quantiles or known.options.get("quantile") in plan.quantiles
    return {"quantiles": plan.quantiles} if has_option else {}


def _diagnostics(task: Task, names: list[str], **positive: float) -> list[tfma.MetricConfig]:
    """Return the metrics that add plots and intervals; metrics of other tasks compute their intervals themselves."""
    ours = plot_metrics.__name__
    if task in ("binary", "anomaly"):
        return [_metric("BinaryDiagnostics", ours, name=_DIAGNOSTICS, metrics=names, **positive)]
    if task == "regression":
        return [_metric("RegressionDiagnostics", ours, name=_DIAGNOSTICS)]
    if task in ("multilabel", "survival", "retrieval"):
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
    """Return the slices of `slices`, `slice_thresholds` and `fairness` without duplicates."""
    parts = [slice_of(name) for name in config.slice_thresholds]
    columns = [*config.slices, *((column,) for column, value in parts if value is None)]
    if config.fairness:
        columns.append((config.fairness.column,))
    columns = list(dict.fromkeys(columns))
    values = dict.fromkeys(part for part in parts if part[1] is not None and (part[0],) not in columns)
    return [
        *(tfma.SlicingSpec(feature_keys=list(keys)) for keys in columns),
        *(tfma.SlicingSpec(feature_values={column: value}) for column, value in values),
    ]
