"""Prometheus reads what the server counts, under TensorFlow Serving's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from components.serving.server.library import AVAILABLE, END, Version
from components.serving.server.metrics import Metrics

PREFIX = ":tensorflow:serving:"
Told = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def versions() -> list[Version]:
    return [Version("m", 1, Path("1"), END, "broken"), Version("m", 2, Path("2"), AVAILABLE)]


def told(metrics: Metrics) -> Told:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_requests_are_counted_by_how_they_end(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for status in ("OK", "OK", "INVALID_ARGUMENT"):
        metrics.request(versions[1], "predict", "REST", status, 0.001)
    metrics.request(None, "predict", "GRPC", "NOT_FOUND", 0.001)
    found = told(metrics)
    rest = {"model_name": "m", "entrypoint": "REST", "version": "2"}
    assert found[at("request_count", **rest, status="OK")] == 2
    assert found[at("request_count", **rest, status="INVALID_ARGUMENT")] == 1
    # Whatever name was asked for: names that are made up are not kept.
    nobody = {"model_name": "", "entrypoint": "GRPC", "version": ""}
    assert found[at("request_count", **nobody, status="NOT_FOUND")] == 1


def test_latency_is_told_in_microseconds_for_each_version(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for seconds in (0.000_005, 0.001, 0.5):
        metrics.request(versions[1], "predict", "REST", "OK", seconds)
    found = told(metrics)
    labels = {"model_name": "m", "API": "predict", "entrypoint": "REST", "version": "2"}
    assert found[at("request_latency_count", **labels)] == 3
    assert found[at("request_latency_sum", **labels)] == pytest.approx(501_005)
    assert found[at("request_latency_bucket", **labels, le="10.0")] == 1
    assert found[at("request_latency_bucket", **labels, le="+Inf")] == 3


def test_batches_are_told_by_their_rows(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for rows in (1, 3, 64):
        metrics.batch(versions[1], rows)
    found = told(metrics)
    name, labels = "batching_session:processed_batch_size", {"model_name": "m", "version": "2"}
    assert found[at(f"{name}_bucket", **labels, le="1.0")] == 1
    assert found[at(f"{name}_bucket", **labels, le="4.0")] == 2
    assert found[at(f"{name}_sum", **labels)] == 68


def test_the_state_of_every_version_is_told(versions: list[Version]) -> None:
    found = told(Metrics(lambda: versions, lambda: 3))
    assert found == {
        at("request_log_dropped"): 3,
        at("version_state", model_name="m", version="1"): 50,
        at("version_state", model_name="m", version="2"): 30,
    }


def test_a_version_that_is_gone_is_forgotten(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for version in versions:
        metrics.request(version, "predict", "REST", "OK", 0.001)
        metrics.batch(version, 1)
    metrics.forget(versions[0])
    numbers = {dict(labels).get("version") for name, labels in told(metrics) if name != "version_state"}
    assert numbers == {"2", None}
