"""What the server counts, for Prometheus: under TensorFlow Serving's names, with the version as one label more.

So the same rules and dashboards serve for both. How TensorFlow Serving tells its own:
https://www.tensorflow.org/tfx/serving/serving_config#monitoring_configuration
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.registry import Collector

from components.serving.server.library import Version

_PREFIX = ":tensorflow:serving:"
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
"""TensorFlow Serving's own buckets."""
_ROWS = [2.0**power for power in range(14)]


class Metrics(Collector):
    """Counts requests, their latency, and the rows of batches.

    Args:
      versions: tells all versions there are.
    """

    def __init__(self, versions: Callable[[], Iterable[Version]]) -> None:
        self._versions = versions
        self._requests: Counter[tuple[str, str, str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._latency = Histogram(
            f"{_PREFIX}request_latency",
            "Microseconds from a request's arrival to its answer.",
            ["model_name", "API", "entrypoint", "version"],
            registry=self._registry,
            buckets=_MICROSECONDS,
        )
        self._batches = Histogram(
            f"{_PREFIX}batching_session:processed_batch_size",
            "Rows that went through a model together.",
            ["model_name", "version"],
            registry=self._registry,
            buckets=_ROWS,
        )
        self._registry.register(self)

    def request(self, version: Version | None, api: str, entrypoint: str, status: str, seconds: float) -> None:
        """Counts a request.

        Args:
          version: who has answered it; None where there is no such model, whatever name was asked for.
          api: predict, classify or regress.
          entrypoint: REST or GRPC.
          status: gRPC's name of how it ended.
          seconds: how long it took.
        """
        model, number = ("", "") if version is None else (version.model, str(version.number))
        self._requests[model, entrypoint, status, number] += 1
        if version is not None:
            self._latency.labels(model, api, entrypoint, number).observe(seconds * 1e6)

    def batch(self, version: Version, rows: int) -> None:
        """Counts a batch."""
        self._batches.labels(version.model, str(version.number)).observe(rows)

    def forget(self, version: Version) -> None:
        """Drops what belongs to a version that is gone: a server that lives long would tell of ever more."""
        model, number = version.model, str(version.number)
        for key in [key for key in self._requests if (key[0], key[3]) == (model, number)]:
            del self._requests[key]
        for histogram, at in ((self._latency, 3), (self._batches, 1)):
            for labels in [each for each in histogram._metrics if (each[0], each[at]) == (model, number)]:
                histogram.remove(*labels)

    def collect(self) -> Iterator[UntypedMetricFamily | GaugeMetricFamily]:
        """What prometheus_client has no type for under these names: it would call a counter …_total."""
        counts = UntypedMetricFamily(
            f"{_PREFIX}request_count", "Requests.", labels=["model_name", "entrypoint", "status", "version"]
        )
        for labels, count in self._requests.items():
            counts.add_metric(labels, count)
        yield counts
        states = GaugeMetricFamily(
            f"{_PREFIX}version_state", "30: available; 50: gone, or not to be loaded.", labels=["model_name", "version"]
        )
        for version in self._versions():
            states.add_metric([version.model, str(version.number)], version.state)
        yield states

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        told: bytes = generate_latest(self._registry)
        return told
