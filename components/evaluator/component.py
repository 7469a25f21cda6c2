"""The Evaluator as a TFX component: TFMA computes the configured metrics, and the gate decides about the model."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types import standard_component_specs as keys
from tfx.utils import json_utils

from components.evaluator.eval_config import eval_config
from components.evaluator.executor import Executor, StockExecutor
from components.evaluator.plan import EvaluationPlan


class EvaluatorSpec(keys.EvaluatorSpec):  # type: ignore[misc]
    """TFX's EvaluatorSpec, plus the gate's plan and a digest of its code."""

    PARAMETERS: ClassVar = {
        **keys.EvaluatorSpec.PARAMETERS,
        "plan": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }


class Evaluator(base_beam_component.BaseBeamComponent):  # type: ignore[misc]
    """Evaluates the exported model on raw examples of the eval split; its outputs are an evaluation and a blessing.

    Args:
      plan: metrics, slices and bounds.
      code: a digest of the gate's code, for the cache key.
      examples: raw examples with a split `eval`.
      model: the candidate.
      baseline: the latest blessed model, if there is one.
      label_key: the label's name, in the examples or in the outputs of `preprocessing`; that of the first of several.
      preprocessing: signatures of the model that compute label and features.
      prediction_key: the output that is the prediction, of the first label; None if the model has one output.
      vectorised: whether the metrics are computed from columns; otherwise TFX's executor computes them row by row.
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
        vectorised: bool = True,
    ) -> None:
        spec = EvaluatorSpec(
            examples=examples,
            model=model,
            baseline_model=baseline,
            example_splits=json_utils.dumps(["eval"]),
            eval_config=eval_config(plan.of_labels()[0], label_key, preprocessing, prediction_key),
            plan=plan.model_dump_json(),
            code=code,
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        executor = Executor if vectorised else StockExecutor
        super().__init__(spec=spec, custom_executor_spec=executor_spec.BeamExecutorSpec(executor))
