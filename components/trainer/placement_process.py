"""The process that builds a network to check `training.strategy.place`; a config is checked without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable

from components.base.errors import InputError
from components.compat.tensorflow import set_environment
from components.trainer.plan import TrainingPlan


def load() -> Callable[[str], str]:
    """Import TensorFlow, without accelerators, which another process may use."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    set_environment()
    import components.trainer.placement  # noqa: F401

    return describe_misfit


def describe_misfit(plan: str) -> str:
    """Return why layers cannot be placed, with a remedy; empty if they can.

    Args:
      plan: A TrainingPlan as JSON.
    """
    from components.trainer.placement import compute_placement

    try:
        compute_placement(TrainingPlan.model_validate_json(plan), None)
    except InputError as error:
        return f"{error.headline.removeprefix('training.strategy.place: ')}; {error.remedy}"
    return ""
