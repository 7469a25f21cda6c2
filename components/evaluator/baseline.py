"""Selects the baseline: the latest blessed model other than the candidate."""

from __future__ import annotations

import json
import logging
from typing import Any

from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.dsl.io import fileio
from tfx.types import Artifact, BaseChannel, Channel
from tfx.types import standard_component_specs as keys
from tfx.types.standard_artifacts import Model, ModelBlessing
from tfx.utils import path_utils

_DESCRIPTION = "assets.extra/warm_start.json"
"""File of a SavedModel; components/trainer/warm_start writes it."""


class LatestOtherBlessedModel(LatestBlessedModelStrategy):  # type: ignore[misc]
    """TFX's strategy, among all models except the candidate.

    In a run without changes the candidate was blessed by an earlier run. As its own baseline it would
    change the inputs of the Evaluator, which would run again, and the model would be pushed again.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Artifact]]) -> dict[str, list[Artifact]]:
        """Select the baseline.

        Args:
          store: the ML Metadata store.
          input_dict: all artifacts of `model` and `model_blessing`, and the `candidate`.

        Returns:
          `model` and `model_blessing` with one artifact each, or none, and the `candidate`.
        """
        candidates = {candidate.id for candidate in input_dict["candidate"]}
        others = [model for model in input_dict["model"] if model.id not in candidates]
        selected = super().resolve_artifacts(store, {"model": others, "model_blessing": input_dict["model_blessing"]})
        return {**selected, "candidate": input_dict["candidate"]}


def baseline(candidate: BaseChannel | None) -> Resolver:
    """Create the node `LatestBlessedModel`; its output `model` is empty as long as no other model is blessed.

    Args:
      candidate: the model to exclude. None: TFX's own strategy, the only one that Vertex AI supports. It may select the
        candidate, which `usable_baseline` then removes.
    """
    channels = {"model": Channel(type=Model), "model_blessing": Channel(type=ModelBlessing)}
    if candidate is None:
        resolver = Resolver(strategy_class=LatestBlessedModelStrategy, **channels)
    else:
        resolver = Resolver(strategy_class=LatestOtherBlessedModel, **channels, candidate=candidate)
    return resolver.with_id("LatestBlessedModel")


def usable_baseline(inputs: dict[str, list[Artifact]]) -> dict[str, list[Artifact]]:
    """Remove the baseline from an Evaluator's inputs if it is the candidate, or predicts something else.

    Only TFX's own strategy selects the candidate, in a run without changes. A model of an earlier config may predict
    something else; a comparison with it would be meaningless, or fail.
    """
    [candidate] = inputs[keys.MODEL_KEY]
    others = [each for each in inputs.get(keys.BASELINE_MODEL_KEY) or () if each.uri != candidate.uri]
    predicted = _predicted(candidate)
    for each in others:
        if _predicted(each) != predicted:
            logging.warning("%s predicts %s, not %s: it is not the baseline", each.uri, _predicted(each), predicted)
    comparable = [each for each in others if _predicted(each) == predicted]
    rest = {key: artifacts for key, artifacts in inputs.items() if key != keys.BASELINE_MODEL_KEY}
    return {**rest, keys.BASELINE_MODEL_KEY: comparable} if comparable else rest


def _predicted(model: Artifact) -> dict[str, str]:
    """Return what a model predicts, as the Trainer describes it for a warm start; empty for a model of own code."""
    path = f"{path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))}/{_DESCRIPTION}"
    if not fileio.exists(path):
        return {}
    with fileio.open(path) as file:
        described = json.load(file)
    sense = {name: described["sense"][name] for name in ("label", "task")}
    # The ranks of two retrievals are comparable if both leave out the items that a user has seen, or neither.
    user = described["exclude_seen"]
    return {**sense, "exclude_seen": user} if user else sense
