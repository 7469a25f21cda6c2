"""The Evaluator node: TFMA measures what the config names, and our gate judges."""

from __future__ import annotations

import json
from typing import ClassVar

import tensorflow_model_analysis as tfma
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types import standard_component_specs as keys
from tfx.utils import json_utils

from components.evaluator import calibration, evidence, results
from components.evaluator.config import METRICS, RATES, EvaluationConfig, slice_of
from components.evaluator.executor import Executor
from components.evaluator.gate import PREVALENCE
from components.evaluator.plan import EvaluationPlan
from components.section import Task

_EVIDENCE = "evidence"


class EvaluatorSpec(keys.EvaluatorSpec):  # type: ignore[misc]
    """What TFX's Evaluator reads and writes, and the plan of the gate."""

    PARAMETERS: ClassVar = {
        **keys.EvaluatorSpec.PARAMETERS,
        "plan": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }


class Evaluator(base_beam_component.BaseBeamComponent):  # type: ignore[misc]
    """Raw examples of the eval split through the exported model: metrics by slice, a verdict, a blessing.

    Args:
      plan: what is measured, and what is good enough.
      code: a digest of the gate's code, for the cache.
      examples: raw ones, with a split `eval`.
      model: the candidate.
      baseline: the latest blessed model, if there is one.
      label_key: where the label is found, in the examples or in what `preprocessing` gives.
      preprocessing: signatures of the model that make label and features.
      prediction_key: the answer that is the prediction; None where there is one only.
    """

    SPEC_CLASS = EvaluatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        plan: EvaluationPlan,
        code: str,
        *,
        examples: BaseChannel,
        model: BaseChannel,
        baseline: BaseChannel,
        label_key: str,
        preprocessing: tuple[str, ...],
        prediction_key: str | None,
    ) -> None:
        spec = EvaluatorSpec(
            examples=examples,
            model=model,
            baseline_model=baseline,
            example_splits=json_utils.dumps(["eval"]),
            eval_config=eval_config(plan.evaluation, plan.task, label_key, preprocessing, prediction_key),
            plan=plan.model_dump_json(),
            code=code,
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        super().__init__(spec=spec)


def eval_config(
    config: EvaluationConfig, task: Task, label_key: str, preprocessing: tuple[str, ...], prediction_key: str | None
) -> tfma.EvalConfig:
    """TFMA's config for ours: what is measured. No threshold is among it; those are the gate's."""
    metrics = [tfma.MetricConfig(class_name="ExampleCount")]
    # Named as in the config: it is `accuracy` that misses its threshold, not sparse_categorical_accuracy.
    chosen = {name: METRICS[name] for name in config.metrics_for(task)}
    metrics += [_metric(metric.tfma_class, metric.module, name=name) for name, metric in chosen.items()]
    if any(metric.both_classes for metric in chosen.values()):
        metrics.append(_metric("HistogramPrevalence", calibration.__name__, name=PREVALENCE))
    if config.fairness:
        metrics += [_metric(made, "", name=rate, thresholds=[config.fairness.at]) for rate, made in RATES.items()]
    metrics += _evidence(task, [*chosen, *(RATES if config.fairness else ())])
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=label_key,
                prediction_key=prediction_key or "",
                preprocessing_function_names=list(preprocessing),
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *_slices(config)],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )


def _evidence(task: Task, names: list[str]) -> list[tfma.MetricConfig]:
    """What is measured for plots and intervals; of a crossentropy of classes, the metric itself has its interval."""
    ours = evidence.__name__
    if task == "binary":
        return [_metric("BinaryEvidence", ours, name=_EVIDENCE, metrics=names)]
    if task == "regression":
        return [_metric("RegressionEvidence", ours, name=_EVIDENCE)]
    matrix = _metric("MultiClassConfusionMatrixPlot", "", thresholds=[0.0])
    return [matrix, _metric("RateEvidence", ours, name=_EVIDENCE, metrics=["accuracy"], rows=results.ROWS)]


def _metric(tfma_class: str, module: str, **options: object) -> tfma.MetricConfig:
    return tfma.MetricConfig(class_name=tfma_class, module=module, config=json.dumps(options))


def _slices(config: EvaluationConfig) -> list[tfma.SlicingSpec]:
    """Each slice once: what the config names for a look, for a threshold or for its groups."""
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
