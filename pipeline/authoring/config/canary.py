"""The section `canary`: how `runner.py models rollout` increases the traffic of a new version, and judges it."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from typing_extensions import Self

from components.base.config_section import Section
from components.ingest.config import Duration
from components.pusher.serving_state import Percent
from pipeline.authoring.config.notify import Command

Source = Literal["haproxy", "istio", "server"]
"""Whose metrics are read."""


class CanaryStep(Section):
    """A share of the traffic, and for how long."""

    percent: Percent
    """The canary's share, in percent, with at most two decimals."""
    duration: Duration = 600.0
    """The least time of the step: seconds, or 10m, 2h, 1d."""


class CanaryConfig(Section):
    """How `runner.py models rollout` increases the traffic of a version, and when it takes the traffic back."""

    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1)] = (
        CanaryStep(percent=5),
        CanaryStep(percent=25),
        CanaryStep(percent=50),
    )
    """Shares in ascending order."""
    prometheus: str = Field(default="http://127.0.0.1:9090", pattern=r"^https?://[^\s]+$")
    """The URL of the Prometheus server that scrapes the proxy or the model servers."""
    source: Source = "haproxy"
    """Whose metrics are read. haproxy: requests, failures and mean latency by backend. istio: those of the workloads
    NAME-stable and NAME-canary, with the 99th percentile of the latency. server: those of this project's server by
    version; TensorFlow Serving does not distinguish versions."""
    apply: Command = ()
    """A program that makes the proxy read the files in `rollout/` again, such as `systemctl reload haproxy` or
    `kubectl apply -f out/taxi/pushed/rollout/virtual-service.yaml`. `models canary`, `models promote`,
    `models rollback` and `models rollout` run it after each change, and kill it after a minute."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that select the series of this model, such as {job: haproxy-taxi}, if the Prometheus server has others."""
    least_requests: PositiveInt = 500
    """Requests to the canary in a step, and logged predictions of each version, before they are judged."""
    max_errors: NonNegativeFloat = 0.01
    """How much greater the share of failed requests may be than the stable version's. A request has failed if its
    status is not 2xx: a version that rejects what the stable version accepts is worse, too."""
    max_latency: Annotated[float, Field(ge=1)] = 1.5
    """How many times the stable version's latency, and 5 ms more, the canary may take."""
    max_difference: PositiveFloat = 0.2
    """How far predictions may differ from the stable version's, as distributions: numbers by the mean distance in
    standard deviations, texts by the share of the most different one. They are read from the log in `monitor.requests`;
    without it predictions are not compared."""
    interval: Annotated[Duration, Field(gt=0)] = 30.0
    """Time between two looks at the metrics."""
    patience: Duration = 3600.0
    """How long a step waits for the requests or metrics that it lacks; then the canary is stopped without a
    judgement."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        shares = [step.percent for step in self.steps]
        if any(after <= before for before, after in itertools.pairwise(shares)):
            received = ", ".join(f"{share:g}" for share in shares)
            raise ValueError(f"expected steps with ascending shares, received {received}")
        return self
