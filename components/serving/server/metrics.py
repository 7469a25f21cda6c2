"""What the server counts, for Prometheus: under TensorFlow Serving's names, with the version as one label more.

So the same rules and dashboards serve for both. How TensorFlow Serving tells its own:
https://www.tensorflow.org/tfx/serving/serving_config#monitoring_configuration
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from components.serving.server.library import Version

_PREFIX = ":tensorflow:serving:"
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
"""TensorFlow Serving's own buckets."""
_ROWS = [2.0**power for power in range(14)]


class _Histogram:
    """Counts values up to each bound; prometheus_client's own takes a lock and goes over all of them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)


class Metrics(Collector):
    """Counts requests, their latency, and the rows of batches; by one thread.

    Args:
      versions: tells all versions there are.
      dropped: tells how many requests should have been recorded, but were not.
    """

    def __init__(self, versions: Callable[[], Iterable[Version]], dropped: Callable[[], int]) -> None:
        self._versions, self._dropped = versions, dropped
        self._requests: Counter[tuple[Version | None, str, str]] = Counter()
        self._latency: dict[tuple[Version, str, str], _Histogram] = defaultdict(lambda: _Histogram(_MICROSECONDS))
        self._batches: dict[Version, _Histogram] = defaultdict(lambda: _Histogram(_ROWS))
        self._registry = CollectorRegistry()
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
        self._requests[version, entrypoint, status] += 1
        if version is not None:
            self._latency[version, api, entrypoint].observe(seconds * 1e6)

    def batch(self, version: Version, rows: int) -> None:
        """Counts a batch."""
        self._batches[version].observe(rows)

    def forget(self, version: Version) -> None:
        """Drops what belongs to a version that is gone: a server that lives long would tell of ever more."""
        self._requests = Counter({key: count for key, count in self._requests.items() if key[0] is not version})
        for key in [key for key in self._latency if key[0] is version]:
            del self._latency[key]
        self._batches.pop(version, None)

    def collect(self) -> Iterator[Metric]:
        """All of it, under names of which prometheus_client would call some otherwise: a counter …_total."""
        requests = UntypedMetricFamily(
            f"{_PREFIX}request_count", "Requests.", labels=["model_name", "version", "entrypoint", "status"]
        )
        for (asked, *labels), count in self._requests.items():
            requests.add_metric([*_names(asked), *labels], count)
        yield requests
        latency = HistogramMetricFamily(
            f"{_PREFIX}request_latency",
            "Microseconds from a request's arrival to its answer.",
            labels=["model_name", "version", "API", "entrypoint"],
        )
        for (version, *labels), histogram in self._latency.items():
            histogram.add_to(latency, [*_names(version), *labels])
        yield latency
        batches = HistogramMetricFamily(
            f"{_PREFIX}batching_session:processed_batch_size",
            "Rows that went through a model together.",
            labels=["model_name", "version"],
        )
        for version, histogram in self._batches.items():
            histogram.add_to(batches, _names(version))
        yield batches
        states = GaugeMetricFamily(
            f"{_PREFIX}version_state", "30: available; 50: gone, or not to be loaded.", labels=["model_name", "version"]
        )
        for version in self._versions():
            states.add_metric(_names(version), version.state)
        yield states
        yield UntypedMetricFamily(
            f"{_PREFIX}request_log_dropped", "Requests that came too fast to be recorded.", value=self._dropped()
        )

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        told: bytes = generate_latest(self._registry)
        return told


def _names(version: Version | None) -> list[str]:
    return ["", ""] if version is None else [version.model, str(version.number)]
