"""The Evaluator as a TFX component: it computes the configured metrics, and the gate decides whether to bless."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types import standard_component_specs as keys
from tfx.utils import json_utils

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
    """Evaluate the exported model on raw examples of the eval split; the outputs are an evaluation and a blessing.

    Args:
      plan: Labels, metrics, slices and bounds.
      code: Digest of the gate's code, for the cache key.
      examples: Raw examples with a split `eval`.
      model: The candidate.
      baseline: The latest blessed model; an empty channel before the first model is blessed.
      vectorised: Whether to compute the metrics from columns; otherwise TFX's executor computes them row by row.
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
        vectorised: bool = True,
    ) -> None:
        spec = EvaluatorSpec(
            examples=examples,
            model=model,
            baseline_model=baseline,
            example_splits=json_utils.dumps(["eval"]),
            plan=plan.model_dump_json(),
            code=code,
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        executor = Executor if vectorised else StockExecutor
        super().__init__(spec=spec, custom_executor_spec=executor_spec.BeamExecutorSpec(executor))
