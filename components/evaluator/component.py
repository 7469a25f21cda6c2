"""TFX's Evaluator, told by the config what to measure and what is good enough."""

from __future__ import annotations

import json

import tensorflow_model_analysis as tfma
from tfx.components import Evaluator
from tfx.types import BaseChannel

from components.evaluator.config import METRICS, EvaluationConfig, Threshold
from components.section import Task


def evaluator(
    config: EvaluationConfig,
    task: Task,
    *,
    examples: BaseChannel,
    model: BaseChannel,
    baseline: BaseChannel,
    label_key: str,
    preprocessing: tuple[str, ...],
    prediction_key: str | None,
) -> Evaluator:
    """The Evaluator node: raw examples of the eval split through the exported model, metrics by slice, a blessing."""
    return Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline,
        example_splits=["eval"],
        eval_config=eval_config(config, task, label_key, preprocessing, prediction_key),
    )


def eval_config(
    config: EvaluationConfig, task: Task, label_key: str, preprocessing: tuple[str, ...], prediction_key: str | None
) -> tfma.EvalConfig:
    """TFMA's config for ours; a metric carries its threshold with it."""
    metrics = [tfma.MetricConfig(class_name="ExampleCount")]
    metrics += [_metric(name, config.thresholds.get(name)) for name in config.metrics_for(task)]
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=label_key,
                prediction_key=prediction_key or "",
                preprocessing_function_names=list(preprocessing),
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *(tfma.SlicingSpec(feature_keys=list(keys)) for keys in config.slices)],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )


def _metric(name: str, threshold: Threshold | None) -> tfma.MetricConfig:
    metric = METRICS[name]
    # Named as in the config: a threshold on `accuracy` is missed by `accuracy`, not by sparse_categorical_accuracy.
    measured = tfma.MetricConfig(class_name=metric.tfma_class, config=json.dumps({"name": name}))
    if threshold is None:
        return measured
    told = tfma.MetricThreshold()
    if threshold.min is not None:
        told.value_threshold.lower_bound.value = threshold.min
    if threshold.max is not None:
        told.value_threshold.upper_bound.value = threshold.max
    if threshold.worse_by is not None:
        direction = tfma.MetricDirection
        told.change_threshold.direction = (
            direction.HIGHER_IS_BETTER if metric.higher_is_better else direction.LOWER_IS_BETTER
        )
        told.change_threshold.absolute.value = -threshold.worse_by if metric.higher_is_better else threshold.worse_by
    # Bound to the whole split: left to itself, a threshold would hold for every slice, however few its rows.
    measured.per_slice_thresholds.add(slicing_specs=[tfma.SlicingSpec()], threshold=told)
    return measured
