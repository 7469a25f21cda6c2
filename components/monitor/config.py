"""The `monitor` section of the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from components.base.config_section import Problem, Section, Texts
from components.evaluator.config import LOSS_METRICS, MetricName, Reaction, Threshold, metric
from components.ingest.durations import Duration
from components.results.log_secret import SECRET_ENVIRONMENT

Bound = Annotated[float, Field(gt=0, le=1)]


class MonitorConfig(Section):
    """Compares the requests to a version with its training rows, and its answers with labels that arrive later. If
    `requests` is set, every run does this in the node Monitor.
    """

    requests: Texts = ()
    """The request log: the folder of `serve --log`, or files, local or remote."""
    window: Duration = 86_400.0
    """Length of the window of newest requests that are compared: seconds, or 90m, 12h, 7d. Log files are never
    split."""
    least_rows: PositiveInt = 500
    """Minimum number of rows in the window for a version to be judged."""
    most_rows: PositiveInt = 50_000
    """Maximum number of requests per version, and of training rows. If there are more, a random sample is compared."""
    bound: Bound = 0.1
    """A column or prediction has drifted if its distance from the training rows, or the change in its share of missing
    values, reaches this bound. 0: the distributions are equal; 1: they do not have any value in common."""
    bounds: dict[str, Bound] = Field(default_factory=dict)
    """Column → its bound, instead of `bound`."""
    new_values: Bound = 0.05
    """A column has drifted if the share of its texts that do not occur in the training rows exceeds the expected share
    by this. The expected share is the share of training rows whose text occurs once: 1 for IDs that are unique to each
    row."""
    out_of_range: Bound = 0.005
    """A column has drifted if this share of its numbers is below the least or above the greatest number in the training
    rows."""
    tails: Bound = 0.02
    """A column has drifted if the share of its numbers below the 1 % quantile or above the 99 % quantile of the
    training rows, which is 0.02 without a change, has increased by this."""
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Probability that a window without any change is reported. A column that reaches a bound has drifted only if
    the difference is also statistically significant at this level, corrected for the number of tests."""
    labels: Texts = ()
    """Rows with labels that arrive after the answers: files, a folder or a pattern, read as `data` says. They must have
    the column `key`, and the columns of `data.label` that requests lack."""
    key: str | None = None
    """Column that joins requests and labels, such as the ID of an order or a user."""
    private: dict[str, Literal["hash", "drop"]] = Field(default_factory=dict)
    """Private columns of requests, which `serve --log` hashes or drops in the request log. hash: values become keyed
    hashes; training rows and labels are hashed in the same way, so that columns are compared and keys are joined. drop:
    the log does not contain the column, and the monitor does not compare it."""
    secret_env: str = Field(default=SECRET_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the secret key of the hashes, of the server and of the monitor."""
    label_window: Duration | None = None
    """Length of the window of newest requests that are joined with labels. By default, `window`. It must be longer
    than the time until a label arrives."""
    thresholds: dict[MetricName, Threshold] = Field(default_factory=dict)
    """Metric → bounds on its value in the window, as in `evaluation.thresholds`. `worse_by` and `worse_by_fraction` are
    relative to the value that the Evaluator measured for the version; a difference within its interval passes."""
    findings: Reaction = "warn"
    """What happens to a run whose node Monitor has findings: drifted columns or exceeded bounds. warn: they are
    reported; refuse: the run stops as rejected."""

    @model_validator(mode="after")
    def _can_join(self) -> MonitorConfig:
        if self.labels and self.key is None:
            raise ValueError(
                "expected a key with labels, received none; name a column of both the requests and the labels"
            )
        if self.key is not None and self.private.get(self.key) == "drop":
            raise ValueError(
                f"private: expected hash for the key {self.key!r}, received drop; labels could not be joined: use hash"
            )
        for name in ("thresholds", "label_window"):
            if getattr(self, name) and not self.labels:
                raise ValueError(f"expected labels with {name}, received none; name their files")
        return self

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield bounds of metrics that the Evaluator does not compute, because there is nothing to compare with."""
        if config.data.task == "retrieval":
            message = "requests for items that fit a query have no item to compare, in the task retrieval; remove it"
            yield Problem(("monitor",), message)
        if self.labels and config.data.task == "anomaly" and config.data.label is None:
            yield Problem(
                ("monitor", "labels"), "expected data.label, whose columns the files contain, received none; add it"
            )
        if self.labels:
            read = {name for label in config.data.declared_labels for name in label.expression.columns}
            read |= {config.data.weight} - {None}
            for name in sorted(read & {name for name, action in self.private.items() if action == "hash"}):
                message = f"expected drop for a column of the label or the weight, received hash for {name!r}"
                yield Problem(("monitor", "private", name), f"{message}; drop it, and add it to the files of labels")
        of_loss = LOSS_METRICS.get(config.model.loss, ()) if config.model.loss else ()
        if config.model.loss == "tweedie":
            of_loss = (f"tweedie_deviance_at_{config.model.tweedie_power}",)
        measured = config.evaluation.metrics_for(config.data.task, of_loss)
        for name in self.thresholds:
            if name not in measured and config.data.task in metric(name).tasks:
                message = f"expected a metric of the evaluation, received {name}; add it to evaluation.metrics"
                yield Problem(("monitor", "thresholds", name), message)
