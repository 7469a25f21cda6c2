"""Select the baseline: the latest blessed model other than the candidate."""

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

    In a run without changes, an earlier run has blessed the candidate. If the candidate were also the baseline, the
    inputs of the Evaluator would change, the Evaluator would run again, and the model would be pushed again.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Artifact]]) -> dict[str, list[Artifact]]:
        """Select the baseline.

        Args:
          store: The ML Metadata store.
          input_dict: All artifacts of `model` and `model_blessing`, and the `candidate`.

        Returns:
          `model` and `model_blessing`, both with one artifact or empty, and the `candidate`.
        """
        candidates = {candidate.id for candidate in input_dict["candidate"]}
        models = [model for model in input_dict["model"] if model.id not in candidates]
        selected = super().resolve_artifacts(store, {"model": models, "model_blessing": input_dict["model_blessing"]})
        return {**selected, "candidate": input_dict["candidate"]}


def baseline(candidate: BaseChannel | None) -> Resolver:
    """Create the node `LatestBlessedModel`; its output `model` is empty as long as no other model is blessed.

    Args:
      candidate: The model to exclude. If None, TFX's strategy is used, because Vertex AI does not support another; it
        may select the candidate, which `drop_unusable_baseline` then removes.
    """
    channels = {"model": Channel(type=Model), "model_blessing": Channel(type=ModelBlessing)}
    if candidate is None:
        resolver = Resolver(strategy_class=LatestBlessedModelStrategy, **channels)
    else:
        resolver = Resolver(strategy_class=LatestOtherBlessedModel, **channels, candidate=candidate)
    return resolver.with_id("LatestBlessedModel")


def drop_unusable_baseline(inputs: dict[str, list[Artifact]]) -> dict[str, list[Artifact]]:
    """Remove the baseline from an Evaluator's inputs if it is the candidate or predicts something else.

    Only TFX's strategy selects the candidate, in a run without changes. A model of an earlier config may predict
    something else, so that a comparison with it would be meaningless or fail.
    """
    [candidate] = inputs[keys.MODEL_KEY]
    expected = _read_target(candidate)
    comparable = []
    for baseline_model in inputs.get(keys.BASELINE_MODEL_KEY) or ():
        target = _read_target(baseline_model)
        if target != expected:
            uri = baseline_model.uri
            logging.warning("%s predicts %s, not %s: it is not the baseline", uri, target, expected)
        elif baseline_model.uri != candidate.uri:
            comparable.append(baseline_model)
    usable = {key: artifacts for key, artifacts in inputs.items() if key != keys.BASELINE_MODEL_KEY}
    return {**usable, keys.BASELINE_MODEL_KEY: comparable} if comparable else usable


def _read_target(model: Artifact) -> dict[str, Any]:
    """Return labels and task of a model, as the Trainer records them for a warm start; empty for own code."""
    path = f"{path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))}/{_DESCRIPTION}"
    if not fileio.exists(path):
        return {}
    with fileio.open(path) as file:
        description = json.load(file)
    sense = description["sense"]
    target = {"labels": sorted(sense["labels"]), "task": sense["task"]}
    # Ranks of two retrievals are comparable only if both or neither leave out the items that a user has seen.
    user = description["exclude_seen"]
    return {**target, "exclude_seen": user} if user else target
