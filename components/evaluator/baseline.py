"""Which model the candidate is compared with: the latest blessed one, the candidate itself left aside."""

from __future__ import annotations

from typing import Any

from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.types import BaseChannel, Channel
from tfx.types import standard_component_specs as keys
from tfx.types.standard_artifacts import Model, ModelBlessing


class LatestOtherBlessedModel(LatestBlessedModelStrategy):  # type: ignore[misc]
    """TFX's strategy, among all models but the candidate.

    A run with nothing changed has a candidate that an earlier run has blessed. Compared with itself it would have a
    baseline that it did not have the first time: it would be evaluated anew, and pushed once more.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The baseline, if there is one.

        Args:
          store: ML Metadata.
          input_dict: `model` and `model_blessing`, all there are, and the `candidate`.

        Returns:
          `model` and `model_blessing`, one each or none, and the `candidate`.
        """
        candidates = {candidate.id for candidate in input_dict["candidate"]}
        others = [model for model in input_dict["model"] if model.id not in candidates]
        found = super().resolve_artifacts(store, {"model": others, "model_blessing": input_dict["model_blessing"]})
        return {**found, "candidate": input_dict["candidate"]}


def baseline(candidate: BaseChannel | None) -> Resolver:
    """The node `LatestBlessedModel`, whose output `model` is empty as long as no other model is blessed.

    Args:
      candidate: the model that is left aside. None: the strategy is TFX's own, the only one that Vertex AI knows, and
        what it finds may be the candidate, which `without_candidate` takes away again.
    """
    known = {"model": Channel(type=Model), "model_blessing": Channel(type=ModelBlessing)}
    if candidate is None:
        found = Resolver(strategy_class=LatestBlessedModelStrategy, **known)
    else:
        found = Resolver(strategy_class=LatestOtherBlessedModel, **known, candidate=candidate)
    return found.with_id("LatestBlessedModel")


def without_candidate(inputs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """An Evaluator's inputs, the baseline left out where it is the candidate itself.

    Only TFX's own strategy finds that, in a run with nothing changed.
    """
    [candidate] = inputs[keys.MODEL_KEY]
    others = [each for each in inputs.get(keys.BASELINE_MODEL_KEY) or () if each.uri != candidate.uri]
    kept = {key: artifacts for key, artifacts in inputs.items() if key != keys.BASELINE_MODEL_KEY}
    return {**kept, keys.BASELINE_MODEL_KEY: others} if others else kept
