"""Metrics for Prometheus, under the names of TensorFlow Serving and with the version as an additional label.

The same rules and dashboards serve for both servers. TensorFlow Serving's:
https://www.tensorflow.org/tfx/serving/serving_config#monitoring_configuration
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from components.serving.server.model_manager import Version

_PREFIX = ":tensorflow:serving:"
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
"""The buckets of TensorFlow Serving."""
_ROWS = [2.0**power for power in range(14)]


class Metrics(Collector):
    """Counts requests, their latency and the rows of batches.

    Args:
      versions: returns all versions.
      dropped: returns how many records the request log dropped.
    """

    def __init__(self, versions: Callable[[], Iterable[Version]], dropped: Callable[[], int]) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._versions, self._dropped = versions, dropped
        self._requests: Counter[tuple[str, str, str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        names = ["model_name", "version", "API", "entrypoint"]
        help_text = "Microseconds from a request's arrival to its answer."
        self._latency = Histogram(
            f"{_PREFIX}request_latency", help_text, names, buckets=_MICROSECONDS, registry=self._registry
        )
        name = f"{_PREFIX}batching_session:processed_batch_size"
        self._rows = Histogram(name, "Rows of a batch.", names[:2], buckets=_ROWS, registry=self._registry)

    def request(self, version: Version | None, method: str, api: str, status: str, seconds: float) -> None:
        """Count a request.

        Args:
          version: what answered it; None if there is no such model. Names that clients invent are not stored.
          method: predict, classify or regress.
          api: REST or GRPC.
          status: the name of gRPC's status code.
          seconds: latency.
        """
        labels = _labels(version)
        self._requests[labels[0], labels[1], api, status] += 1
        if version is not None:
            self._latency.labels(*labels, method, api).observe(seconds * 1e6)

    def batch(self, version: Version, rows: int) -> None:
        """Count a batch."""
        self._rows.labels(*_labels(version)).observe(rows)

    def remove(self, version: Version) -> None:
        """Remove what belongs to a version that was unloaded."""
        labels = _labels(version)
        self._requests = Counter({key: count for key, count in self._requests.items() if key[:2] != labels})
        self._rows.remove_by_labels(dict(zip(("model_name", "version"), labels, strict=True)))
        self._latency.remove_by_labels(dict(zip(("model_name", "version"), labels, strict=True)))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for which prometheus_client has no type: its counters get the suffix _total."""
        names = ["model_name", "version", "entrypoint", "status"]
        requests = UntypedMetricFamily(f"{_PREFIX}request_count", "Requests.", labels=names)
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        states = GaugeMetricFamily(
            f"{_PREFIX}version_state", "30: available; 50: unloaded or failed to load.", labels=names[:2]
        )
        for version in self._versions():
            states.add_metric(_labels(version), version.state)
        dropped = f"{_PREFIX}request_log_dropped"
        yield requests
        yield states
        yield UntypedMetricFamily(dropped, "Requests that the request log dropped.", value=self._dropped())

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        content: bytes = generate_latest(self._registry)
        return content


def _labels(version: Version | None) -> tuple[str, str]:
    return ("", "") if version is None else (version.model, str(version.number))
