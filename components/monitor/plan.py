"""The plan of Monitor: the settings in its cache key.

The requests, the labels and the versions are in the cache key too, but not in the plan; the driver adds them.
"""

from __future__ import annotations

from typing import Any

from components.base.config_section import Section
from components.base.node import ModelPlans
from components.evaluator.plan import EvaluationPlan
from components.ingest.config import DataConfig
from components.monitor.config import MonitorConfig


class MonitorPlan(Section):
    """How requests are compared, and how metrics are computed from answers and labels."""

    monitor: MonitorConfig
    evaluation: EvaluationPlan
    labels: DataConfig | None = None
    """How the files of `monitor.labels` are read. None if the config does not name any."""
    code: str = ""
    """Digest of the node's code, so that the node runs again when its code changes."""


def make_plan(config: Any, plans: ModelPlans, code: str = "") -> MonitorPlan | None:
    """Return what the result of a monitoring depends on; None if the config does not name requests.

    Args:
      config: The whole config.
      plans: What is known about the model.
      code: Digest of the node's code.
    """
    if config.monitor is None or not config.monitor.requests:
        return None
    files = config.monitor.labels
    return MonitorPlan(
        monitor=config.monitor,
        # Served requests are not sampled.
        evaluation=plans.evaluation.model_copy(update={"weight": None} if config.data.sample.label else {}),
        # The format is the format of these files. The format of the data may be another one, such as a query.
        labels=config.data_of(files).model_copy(update={"format": None}) if files else None,
        code=code,
    )
