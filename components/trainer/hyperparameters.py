"""The best values of a Tuner, applied to a training plan."""

from __future__ import annotations

import json
import logging

from tfx.utils import io_utils

from components.trainer.plan import TrainingPlan


def with_best_values(plan: TrainingPlan, uri: str) -> TrainingPlan:
    """Return the plan with the best values of a Tuner.

    Args:
      plan: Plan of the config.
      uri: The Tuner's artifact `best_hyperparameters`.
    """
    values = json.loads(io_utils.read_string_file(io_utils.get_only_uri_in_dir(uri)))["values"]
    logging.info("the Tuner's best values are used: %s", values)
    return plan.with_values(values)
