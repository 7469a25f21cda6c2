"""Which model a warm start begins with: the latest blessed one."""

from __future__ import annotations

from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.types import Channel
from tfx.types.standard_artifacts import Model, ModelBlessing


def base_model() -> Resolver:
    """The node `BaseModel`, whose output `model` is empty as long as no model is blessed.

    It is not the Evaluator's baseline, which is looked up after the training and never the candidate itself.
    """
    return Resolver(
        strategy_class=LatestBlessedModelStrategy,
        model=Channel(type=Model),
        model_blessing=Channel(type=ModelBlessing),
    ).with_id("BaseModel")
