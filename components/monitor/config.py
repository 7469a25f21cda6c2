"""The `monitor` section of the config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from components.config_section import Section
from components.evaluator.config import MetricName, Reaction, Threshold
from components.ingest.config import Duration, Texts

Bound = Annotated[float, Field(gt=0, le=1)]


class MonitorConfig(Section):
    """How served requests are compared with the rows that the version which answered was trained on, and answers with
    labels that arrive later. With `requests`, each run does so in the node Monitor.
    """

    requests: Texts = ()
    """The request log: the folder of `serve --log`, or files, local or remote."""
    window: Duration = 86_400.0
    """The newest requests are compared, of so much time: seconds, or 90m, 12h, 7d. A file is not divided."""
    least_rows: PositiveInt = 500
    """A version with fewer rows in the window is not judged."""
    most_rows: PositiveInt = 50_000
    """Of more requests, and of more training rows, a random sample is compared."""
    bound: Bound = 0.1
    """The distance from which a column, or the prediction, has drifted, and the change of the share of missing values:
    0 is the same distribution, 1 no common value."""
    bounds: dict[str, Bound] = Field(default_factory=dict)
    """Bounds of single columns, instead of `bound`."""
    new_values: Bound = 0.05
    """The share of texts unknown in training from which a column has drifted."""
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """The probability that a window without any change is reported: a column has drifted only if, in addition, the
    test of its difference is significant at this level, corrected for the number of columns."""
    labels: Texts = ()
    """Rows with labels that arrive after the answers: files, a folder or a pattern, read as `data` says. They have the
    column `key` and those of `data.label` that requests do not have."""
    key: str | None = None
    """The column of requests and labels by which they are joined, such as the id of an order or of a user."""
    label_window: Duration | None = None
    """The newest requests that are joined with labels, of so much time; default: `window`. It has to be longer than the
    time until a label arrives."""
    thresholds: dict[MetricName, Threshold] = Field(default_factory=dict)
    """Metric → bounds on its value in the window, as in `evaluation.thresholds`; `worse_by` and `worse_by_fraction` are
    relative to the Evaluator's value of the version, and a difference within its interval does not count."""
    findings: Reaction = "warn"
    """What becomes of a run whose node Monitor finds that columns have drifted or bounds are exceeded. warn: it is
    reported; refuse: the run stops as rejected."""

    @model_validator(mode="after")
    def _can_join(self) -> MonitorConfig:
        if self.labels and self.key is None:
            raise ValueError("expected a key with labels, received none; name the column that both have")
        for name in ("thresholds", "label_window"):
            if getattr(self, name) and not self.labels:
                raise ValueError(f"expected labels with {name}, received none; name their files")
        return self
