"""What the result of a monitoring depends on beside the requests, the labels and the versions: the node's cache key."""

from __future__ import annotations

from components.config_section import Section
from components.evaluator.config import thresholds_of
from components.evaluator.plan import EvaluationPlan
from components.ingest.config import DataConfig
from components.monitor.config import MonitorConfig


class MonitorPlan(Section):
    """How requests are compared, and how metrics are computed from answers and labels."""

    monitor: MonitorConfig
    evaluation: EvaluationPlan
    label_key: str
    """The label's name in the outputs of `preprocessing`, or among the columns; of several labels that of the first."""
    preprocessing: tuple[str, ...]
    """Signatures of the model that compute the label."""
    prediction_key: str | None
    """The output that is the prediction, of several labels that of the first; None if the model has one output."""
    labels: DataConfig | None = None
    """The rows of `monitor.labels`."""
    code: str = ""
    """Digest of the code of the node."""

    def of_labels(self) -> tuple[MonitorPlan, ...]:
        """Returns the plan of each of several labels, which are measured one by one; this plan if there is one."""
        if not self.evaluation.labels:
            return (self,)
        evaluations = self.evaluation.of_labels()
        first = evaluations[0]
        return tuple(
            self.model_copy(
                update={
                    "evaluation": each,
                    "label_key": each.renamed(self.label_key, first),
                    "prediction_key": self.prediction_key and each.renamed(self.prediction_key, first),
                    "monitor": self.monitor.model_copy(
                        update={"thresholds": thresholds_of(each.label_name, self.monitor.thresholds)}
                    ),
                }
            )
            for each in evaluations
        )
