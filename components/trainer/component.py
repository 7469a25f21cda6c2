"""The Trainer as a TFX component, and the node that finds the latest blessed model for a warm start."""

from __future__ import annotations

from typing import Any, ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.proto import trainer_pb2
from tfx.types import BaseChannel, Channel, component_spec
from tfx.types.standard_artifacts import ExampleStatistics, Model, ModelBlessing, ModelRun
from tfx.types.standard_component_specs import TrainerSpec
from tfx.utils import json_utils

from components.trainer.executor import STATISTICS, Executor


class _Spec(component_spec.ComponentSpec):  # type: ignore[misc]
    """TFX's TrainerSpec, plus the statistics of the raw columns."""

    PARAMETERS: ClassVar = TrainerSpec.PARAMETERS
    INPUTS: ClassVar = {
        **TrainerSpec.INPUTS,
        STATISTICS: component_spec.ChannelParameter(type=ExampleStatistics, optional=True),
    }
    OUTPUTS: ClassVar = TrainerSpec.OUTPUTS
    TYPE_ANNOTATION = TrainerSpec.TYPE_ANNOTATION


class Trainer(base_component.BaseComponent):  # type: ignore[misc]
    """The node `Trainer`, with TFX's outputs `model` and `model_run`.

    Args:
      run_fn: Import path of the function that trains.
      examples: Transformed examples.
      transform_graph: Output of Transform.
      schema: Schema of the raw columns.
      statistics: Statistics of the raw columns. With them the model describes which rows it takes, see
        `components.results.request_schema`; if None, the description does not contain values seen in training.
      base_model: The model of a warm start.
      hyperparameters: Output of a Tuner.
      steps: Training steps.
      eval_steps: Steps of an evaluation.
      custom_config: Further arguments of run_fn, which have a JSON form.
    """

    SPEC_CLASS = _Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        run_fn: str,
        *,
        examples: BaseChannel,
        transform_graph: BaseChannel,
        schema: BaseChannel,
        statistics: BaseChannel | None = None,
        base_model: BaseChannel | None = None,
        hyperparameters: BaseChannel | None = None,
        steps: int,
        eval_steps: int,
        custom_config: dict[str, Any],
    ) -> None:
        super().__init__(
            spec=_Spec(
                run_fn=run_fn,
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                base_model=base_model,
                hyperparameters=hyperparameters,
                train_args=trainer_pb2.TrainArgs(num_steps=steps),
                eval_args=trainer_pb2.EvalArgs(num_steps=eval_steps),
                custom_config=json_utils.dumps(custom_config),
                model=Channel(type=Model),
                model_run=Channel(type=ModelRun),
                **{STATISTICS: statistics},
            )
        )


def base_model() -> Resolver:
    """Return the node `BaseModel`, whose output `model` is empty as long as no model is blessed.

    The Evaluator looks up its baseline separately, after the training, and excludes the candidate.
    """
    return Resolver(
        strategy_class=LatestBlessedModelStrategy,
        model=Channel(type=Model),
        model_blessing=Channel(type=ModelBlessing),
    ).with_id("BaseModel")
