"""What the result of a monitoring depends on beside the requests, the labels and the versions: the node's cache key."""

from __future__ import annotations

from components.config_section import Section
from components.evaluator.plan import EvaluationPlan
from components.ingest.config import DataConfig
from components.monitor.config import MonitorConfig


class MonitorPlan(Section):
    """How requests are compared, and how metrics are computed from answers and labels."""

    monitor: MonitorConfig
    evaluation: EvaluationPlan
    label_key: str
    """The label's name in the outputs of `preprocessing`, or among the columns."""
    preprocessing: tuple[str, ...]
    """Signatures of the model that compute the label."""
    prediction_key: str | None
    """The output that is the prediction; None if the model has one output."""
    labels: DataConfig | None = None
    """The rows of `monitor.labels`."""
    code: str = ""
    """Digest of the code of the node."""
