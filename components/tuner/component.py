"""The Tuner node: TFX's, with an executor that resumes a search and records its trials."""

from __future__ import annotations

from tfx.components.tuner.component import Tuner as StockTuner
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel

from components.tuner import search
from components.tuner.executor import Executor
from components.tuner.plan import TuningPlan


class Tuner(StockTuner):  # type: ignore[misc]
    """Runs trials by KerasTuner; outputs `best_hyperparameters` for the Trainer, and `tuner_results`.

    Args:
      plan: The training of a trial, the values to try, and the method of the search.
      code: Digest of the code that a trial runs, for the cache key.
      examples: Transformed examples with the splits `train` and `eval`.
      transform_graph: Output of Transform.
      schema: Schema of the raw examples.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self, plan: TuningPlan, code: str, *, examples: BaseChannel, transform_graph: BaseChannel, schema: BaseChannel
    ) -> None:
        super().__init__(
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            tuner_fn=search.PATH,
            custom_config={"plan": plan.model_dump_json(), "code": code},
        )
