"""Reads the requests to the stable version and to the canary from Prometheus.

Counters are read with `increase`, which corrects for resets when a server or a proxy restarts:
https://prometheus.io/docs/prometheus/latest/querying/functions/#increase
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from components.base.errors import MachineError
from components.pusher.config import RolloutConfig
from pipeline.authoring.config.canary import CanaryConfig, Source

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Traffic:
    """The requests to a version within a time window.

    Attributes:
      requests: Number of requests. It may be fractional, because Prometheus extrapolates between samples.
      errors: Number of failed requests, which have a status other than 2xx.
      latency: 99th percentile of the latency in seconds; with HAProxy, the mean. None if Prometheus lacks samples.
    """

    requests: float
    errors: float
    latency: float | None

    @property
    def error_share(self) -> float:
        """Share of failed requests, 0 to 1; 0 if there were no requests."""
        return min(self.errors / self.requests, 1.0) if self.requests else 0.0


@dataclass(frozen=True)
class _Source:
    """The names of a source's time series.

    Attributes:
      labels: Function from track, version, model and Kubernetes service to the labels that select the version.
      requests: Name of the request counter.
      failed: Label matcher for failed requests.
      latency: PromQL expression for the latency in seconds, with the placeholders SERIES and WINDOW.
    """

    labels: Callable[[str, int, str, str], Mapping[str, str]]
    requests: str
    failed: str
    latency: str


_SOURCES: Mapping[Source, _Source] = {
    "haproxy": _Source(
        lambda track, version, model, service: {"proxy": track},
        "haproxy_backend_http_responses_total",
        'code=~"[45]xx|other"',
        "avg(avg_over_time(haproxy_backend_response_time_average_seconds{SERIES}[WINDOW]))",
    ),
    "istio": _Source(
        lambda track, version, model, service: {"reporter": "source", "destination_workload": f"{service}-{track}"},
        "istio_requests_total",
        'response_code!~"2.."',
        "histogram_quantile(0.99, sum by (le) (increase("
        "istio_request_duration_milliseconds_bucket{SERIES}[WINDOW]))) / 1e3",
    ),
    "server": _Source(
        lambda track, version, model, service: {"model_name": model, "version": str(version)},
        ":tensorflow:serving:request_count",
        'status!="OK"',
        "histogram_quantile(0.99, sum by (le) (increase("
        ":tensorflow:serving:request_latency_bucket{SERIES}[WINDOW]))) / 1e6",
    ),
}


def build_queries(
    policy: CanaryConfig, track: str, version: int, settings: RolloutConfig, seconds: float
) -> tuple[str, str, str]:
    """Return the PromQL expressions for a version's requests, its failed requests, and its latency.

    Args:
      policy: Source of the metrics, and labels that select its series.
      track: `stable` or `canary`.
      version: Number of the version on this track.
      settings: Settings of the rollout, which name the model and the Kubernetes service.
      seconds: Length of the window, which ends now.
    """
    source, model = _SOURCES[policy.source], settings.model_name or ""
    labels = {**source.labels(track, version, model, settings.service(model)), **policy.labels}
    series = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    window = f"{max(1, math.ceil(seconds))}s"
    total, failed = (
        f"sum(increase({source.requests}{{{matchers}}}[{window}]))"
        for matchers in (series, f"{series},{source.failed}")
    )
    return total, failed, source.latency.replace("SERIES", series).replace("WINDOW", window)


def read(policy: CanaryConfig, track: str, version: int, settings: RolloutConfig, seconds: float) -> Traffic:
    """Read the requests to a version from Prometheus. For the arguments, see `build_queries`.

    Raises:
      MachineError: Prometheus does not answer, or answers with an error.
    """
    requests, errors, latency = (
        _query(policy.prometheus, expression) for expression in build_queries(policy, track, version, settings, seconds)
    )
    return Traffic(requests or 0.0, errors or 0.0, latency)


def _query(server: str, query: str) -> float | None:
    """Evaluate a PromQL expression; return None if it does not match any sample."""
    url = f"{server.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the config allows http only
            result: list[Any] = json.load(answer)["data"]["result"]
        value = float(result[0]["value"][1]) if result else math.nan
    except urllib.error.HTTPError as error:
        raise _make_metrics_error(
            server, f"HTTP status {error.code}: {error.read(200).decode(errors='replace')}"
        ) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _make_metrics_error(server, f"{type(error).__name__}: {error}") from error
    return None if math.isnan(value) else value


def _make_metrics_error(server: str, received: str) -> MachineError:
    return MachineError(
        f"canary.prometheus: expected metrics from {server}, received {received}",
        "name the Prometheus server that scrapes the proxy or the model servers",
    )
