"""What Prometheus knows of the requests to the stable version and to the canary.

Counters are read by `increase`, which takes a restart of a server or a proxy into account:
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

from components.errors import MachineError
from components.pusher.config import RolloutConfig
from pipeline.authoring.config.canary import CanaryConfig, Source

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Traffic:
    """The requests to a version in a window.

    Attributes:
      requests: their number; not a whole one, because Prometheus extrapolates between its samples.
      errors: how many of them were not answered with a status 2xx.
      latency: in seconds: the 99th percentile, or with HAProxy the mean; None without a sample.
    """

    requests: float
    errors: float
    latency: float | None

    @property
    def error_share(self) -> float:
        """The share of failed requests; 0 without a request."""
        return min(self.errors / self.requests, 1.0) if self.requests else 0.0


@dataclass(frozen=True)
class _Source:
    """How a source names its series.

    Attributes:
      labels: track, version, model, Kubernetes service → the labels that select a track.
      requests: the counter of requests.
      failed: the label matcher of failed ones.
      latency: a PromQL expression with SERIES and WINDOW, in seconds.
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


def queries(
    policy: CanaryConfig, track: str, version: int, settings: RolloutConfig, seconds: float
) -> tuple[str, str, str]:
    """Returns the PromQL expressions for the requests to a version, the failed ones, and the latency.

    Args:
      policy: the source and its labels.
      track: `stable` or `canary`.
      version: its version.
      settings: names the model.
      seconds: the window up to now.
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
    """Reads what Prometheus has of a version; the arguments are those of `queries`.

    Raises:
      MachineError: Prometheus does not answer, or with an error.
    """
    requests, errors, latency = (
        _value(policy.prometheus, query) for query in queries(policy, track, version, settings, seconds)
    )
    return Traffic(requests or 0.0, errors or 0.0, latency)


def _value(server: str, query: str) -> float | None:
    """The value of an expression; None if it has no sample."""
    url = f"{server.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the config allows http only
            result: list[Any] = json.load(answer)["data"]["result"]
        value = float(result[0]["value"][1]) if result else math.nan
    except urllib.error.HTTPError as error:
        raise _no_metrics(server, f"HTTP status {error.code}: {error.read(200).decode(errors='replace')}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _no_metrics(server, f"{type(error).__name__}: {error}") from error
    return None if math.isnan(value) else value


def _no_metrics(server: str, received: str) -> MachineError:
    return MachineError(
        f"canary.prometheus: expected metrics from {server}, received {received}",
        "name the Prometheus server that scrapes the proxy or the model servers",
    )
