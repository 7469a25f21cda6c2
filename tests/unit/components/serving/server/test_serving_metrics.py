"""Tests that Prometheus can parse the metrics, which have the names of TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import AVAILABLE, END, Version
from tests.support.data.tolerances import float64_sum

PREFIX = ":tensorflow:serving:"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def versions() -> list[Version]:
    return [Version("m", 1, Path("1"), END, "broken"), Version("m", 2, Path("2"), AVAILABLE)]


def samples(metrics: Metrics) -> Samples:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_requests_are_counted_by_status(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for status in ("OK", "OK", "INVALID_ARGUMENT"):
        metrics.request(versions[1], "REST", status, 0.001)
    metrics.request(None, "GRPC", "NOT_FOUND", 0.001)
    values = samples(metrics)
    rest = {"model_name": "m", "entrypoint": "REST", "version": "2"}
    assert values[at("request_count", **rest, status="OK")] == 2
    assert values[at("request_count", **rest, status="INVALID_ARGUMENT")] == 1
    # The name of an unknown model is not stored, because clients could create any number of time series.
    nobody = {"model_name": "", "entrypoint": "GRPC", "version": ""}
    assert values[at("request_count", **nobody, status="NOT_FOUND")] == 1


def test_latency_is_recorded_in_microseconds_by_version(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for seconds in (0.000_005, 0.001, 0.5):
        metrics.request(versions[1], "REST", "OK", seconds)
    values = samples(metrics)
    labels = {"model_name": "m", "API": "predict", "entrypoint": "REST", "version": "2"}
    assert values[at("request_latency_count", **labels)] == 3
    assert values[at("request_latency_sum", **labels)] == float64_sum(3, largest=500_000).approx(501_005)
    assert values[at("request_latency_bucket", **labels, le="10.0")] == 1
    assert values[at("request_latency_bucket", **labels, le="+Inf")] == 3


def test_batch_sizes_are_recorded(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for rows in (1, 3, 64):
        metrics.batch(versions[1], rows)
    values = samples(metrics)
    name, labels = "batching_session:processed_batch_size", {"model_name": "m", "version": "2"}
    assert values[at(f"{name}_bucket", **labels, le="1.0")] == 1
    assert values[at(f"{name}_bucket", **labels, le="4.0")] == 2
    assert values[at(f"{name}_sum", **labels)] == 68


def test_state_of_every_version_is_reported(versions: list[Version]) -> None:
    values = samples(Metrics(lambda: versions, lambda: 3))
    assert values == {
        at("request_log_dropped"): 3,
        at("version_state", model_name="m", version="1"): 50,
        at("version_state", model_name="m", version="2"): 30,
    }


def test_unloaded_version_is_removed(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for version in versions:
        metrics.request(version, "REST", "OK", 0.001)
        metrics.batch(version, 1)
    metrics.remove(versions[0])
    numbers = {dict(labels).get("version") for name, labels in samples(metrics) if name != "version_state"}
    assert numbers == {"2", None}
    # The counters restart from zero when the version is loaded again.
    metrics.request(versions[0], "REST", "OK", 0.001)
    labels = {"model_name": "m", "version": "1", "entrypoint": "REST"}
    values = samples(metrics)
    assert values[at("request_count", **labels, status="OK")] == 1
    assert values[at("request_latency_count", **labels, API="predict")] == 1
