"""The section `canary`: how `runner.py models rollout` increases the traffic of a new version, and evaluates it."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from typing_extensions import Self

from components.base.config_section import Section
from components.ingest.durations import Duration
from components.pusher.serving_state import Percent
from pipeline.authoring.config.notify import Command

Source = Literal["haproxy", "istio", "server"]
"""Origin of the metrics; see `CanaryConfig.source`."""


class CanaryStep(Section):
    """A step of a rollout: a share of the traffic, and its duration."""

    percent: Percent
    """Share of the traffic that the canary gets, in percent, with at most two decimals."""
    duration: Duration = 600.0
    """Minimum duration of the step: seconds, or 10m, 2h, 1d."""


class CanaryConfig(Section):
    """How `runner.py models rollout` increases the traffic of a new version, and when it rolls the version back."""

    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1)] = (
        CanaryStep(percent=5),
        CanaryStep(percent=25),
        CanaryStep(percent=50),
    )
    """Steps of the rollout, with ascending shares."""
    prometheus: str = Field(default="http://127.0.0.1:9090", pattern=r"^https?://[^\s]+$")
    """URL of the Prometheus server that scrapes the proxy or the model servers."""
    source: Source = "haproxy"
    """Origin of the metrics. haproxy: requests, failures and mean latency of the backends in HAProxy; istio: requests,
    failures and the 99th percentile of the latency of the workloads NAME-stable and NAME-canary; server: metrics of
    this project's server by version. The metrics of TensorFlow Serving do not distinguish versions."""
    apply: Command = ()
    """Command that makes the proxy reload the files in `rollout/`, such as `systemctl reload haproxy` or
    `kubectl apply -f out/taxi/pushed/rollout/virtual-service.yaml`. `models canary`, `models promote`,
    `models rollback` and `models rollout` run it after every change, and kill it after a minute."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Prometheus labels that select the series of this model, such as `{job: haproxy-taxi}`. Required if the Prometheus
    server also contains series of other models."""
    least_requests: PositiveInt = 500
    """Minimum number of requests to the canary in a step, and of logged predictions per version, for an evaluation."""
    max_errors: NonNegativeFloat = 0.01
    """Maximum amount by which the share of failed requests may exceed the stable version's share. A request has failed
    if its status is not 2xx, because a version that rejects more requests than the stable version is worse, too."""
    max_latency: Annotated[float, Field(ge=1)] = 1.5
    """Upper bound on the canary's latency: this factor times the stable version's latency, plus 5 ms."""
    max_difference: PositiveFloat = 0.2
    """Upper bound on the difference between the distributions of the canary's and the stable version's predictions. For
    numbers, it is the mean distance in standard deviations; for texts, the greatest difference in the share of a text.
    Predictions are read from the log in `monitor.requests`. Without a log, they are not compared."""
    interval: Annotated[Duration, Field(gt=0)] = 30.0
    """Time between two queries of the metrics."""
    patience: Duration = 3600.0
    """Time beyond its duration that a step waits for missing requests or metrics. After that, the canary is stopped
    without an evaluation."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        shares = [step.percent for step in self.steps]
        if any(after <= before for before, after in itertools.pairwise(shares)):
            received = ", ".join(f"{share:g}" for share in shares)
            raise ValueError(f"expected steps with ascending shares, received {received}")
        return self
