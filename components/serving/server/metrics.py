"""Metrics for Prometheus, under the names of TensorFlow Serving, with the version and signature as additional labels.

So the same alerting rules and dashboards work with both servers. Metrics of TensorFlow Serving:
https://www.tensorflow.org/tfx/serving/serving_config#monitoring_configuration
The metrics of the process have the names of Prometheus' client libraries:
https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector

from components.serving.server.gpu_metrics import register_gpus
from components.serving.server.model_manager import Version

_MICROSECONDS = sorted([*(10 * 1.8**power for power in range(33)), *(10 * 1.8 ** (power + 0.5) for power in range(32))])
"""The buckets of TensorFlow Serving, each divided in two, so that a quantile is at most 34 % above the true value."""
_ROWS = [2.0**power for power in range(14)]
_VERSION = ("model_name", "version")


class _Count(Gauge):
    """A counter without the suffix _total, which prometheus_client adds and TensorFlow Serving does not use."""

    _type = "unknown"


class Metrics:
    """Counts requests, their latency and the rows of batches, and reads the load of the process and of GPUs.

    Args:
      versions: Function that returns all versions.
      dropped: Function that returns the number of records that the request log dropped.
    """

    def __init__(self, versions: Callable[[], Iterable[Version]], dropped: Callable[[], int]) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._versions, self._registry = versions, CollectorRegistry()

        def add(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(f":tensorflow:serving:{name}", text, labels, registry=self._registry, **options)

        self._requests = add(_Count, "request_count", "Requests.", *_VERSION, "entrypoint", "status", "signature")
        text = "Microseconds from a request's arrival to its answer."
        labels = ("API", "entrypoint", "signature")
        self._latency = add(Histogram, "request_latency", text, *_VERSION, *labels, buckets=_MICROSECONDS)
        # Cache the lookup of a metric by its labels, which takes longer than counting.
        self._count, self._observed = functools.cache(self._requests.labels), functools.cache(self._latency.labels)
        name = "batching_session:processed_batch_size"
        self._rows = add(Histogram, name, "Rows of a batch.", *_VERSION, "signature", buckets=_ROWS)
        self._in_progress = add(Gauge, "requests_in_progress", "Requests that are received, queued or answered.")
        text = "Requests that wait for a batch."
        self._waiting = add(Gauge, "batching_session:queue_length", text, *_VERSION, "signature")
        self._states = add(Gauge, "version_state", "30: available; 50: unloaded or failed to load.", *_VERSION)
        text = "Values that are unusual for the training data."
        self._anomalies = add(_Count, "feature_anomalies_total", text, *_VERSION, "feature", "kind")
        add(_Count, "request_log_dropped", "Requests that the request log dropped.").set_function(dropped)
        ProcessCollector(registry=self._registry)
        register_gpus(self._registry)

    def request(self, version: Version | None, api: str, status: str, seconds: float, signature: str = "") -> None:
        """Count a request.

        Args:
          version: Version that answered. If None, no version was found; names that clients invent are not stored.
          api: REST or GRPC.
          status: Name of gRPC's status code.
          seconds: Latency in seconds.
          signature: Name of the signature, "" if the model does not have the requested one.
        """
        labels = _labels(version)
        self._count(*labels, api, status, signature).inc()
        if version is not None:
            self._observed(*labels, "predict", api, signature).observe(seconds * 1e6)

    def batch(self, version: Version, signature: str, rows: int) -> None:
        """Count a batch with this number of rows. A request that runs alone is a batch, too."""
        self._rows.labels(*_labels(version), signature).observe(rows)

    def remove(self, version: Version) -> None:
        """Remove the metrics of a version that was unloaded."""
        for metric in (self._requests, self._latency, self._rows):
            metric.remove_by_labels(dict(zip(_VERSION, _labels(version), strict=True)))
        self._count.cache_clear()
        self._observed.cache_clear()

    def text(self, in_progress: int = 0, waiting: Mapping[tuple[Version, str], int] | None = None) -> bytes:
        """Return all metrics in the text format of Prometheus.

        Args:
          in_progress: Number of requests in progress.
          waiting: Version and signature → number of requests that wait for a batch.
        """
        self._in_progress.set(in_progress)
        self._waiting.clear()
        for (version, signature), requests in (waiting or {}).items():
            self._waiting.labels(*_labels(version), signature).set(requests)
        self._states.clear()
        self._anomalies.clear()
        for version in self._versions():
            self._states.labels(*_labels(version)).set(version.state)
            saved_model = version.saved_model
            if saved_model is not None and saved_model.row_checks is not None:
                for (feature, kind), count in saved_model.row_checks.read_counts().items():
                    self._anomalies.labels(*_labels(version), feature, kind).set(count)
        return prometheus_client.generate_latest(self._registry)


def _labels(version: Version | None) -> tuple[str, str]:
    return ("", "") if version is None else (version.model, str(version.number))
