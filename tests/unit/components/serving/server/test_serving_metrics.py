"""Tests that Prometheus can parse the metrics, which have the names of TensorFlow Serving."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import psutil
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from components.serving.server.gpu_metrics import register_gpus
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
        metrics.request(versions[1], "REST", status, 0.001, "raw")
    metrics.request(None, "GRPC", "NOT_FOUND", 0.001)
    values = samples(metrics)
    rest = {"model_name": "m", "entrypoint": "REST", "version": "2", "signature": "raw"}
    assert values[at("request_count", **rest, status="OK")] == 2
    assert values[at("request_count", **rest, status="INVALID_ARGUMENT")] == 1
    # The name of an unknown model is not stored, because clients could create any number of time series.
    nobody = {"model_name": "", "entrypoint": "GRPC", "version": "", "signature": ""}
    assert values[at("request_count", **nobody, status="NOT_FOUND")] == 1


def test_latency_is_recorded_in_microseconds_by_version(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for seconds in (0.000_005, 0.001, 0.5):
        metrics.request(versions[1], "REST", "OK", seconds, "raw")
    metrics.request(versions[1], "REST", "OK", 1.0, "serving_default")
    values = samples(metrics)
    labels = {"model_name": "m", "API": "predict", "entrypoint": "REST", "version": "2", "signature": "raw"}
    assert values[at("request_latency_count", **labels)] == 3
    assert values[at("request_latency_sum", **labels)] == float64_sum(3, largest=500_000).approx(501_005)
    assert values[at("request_latency_bucket", **labels, le="10.0")] == 1
    assert values[at("request_latency_bucket", **labels, le="+Inf")] == 3


def test_batch_sizes_are_recorded(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for rows in (1, 3, 64):
        metrics.batch(versions[1], "raw", rows)
    values = samples(metrics)
    name = "batching_session:processed_batch_size"
    labels = {"model_name": "m", "version": "2", "signature": "raw"}
    assert values[at(f"{name}_bucket", **labels, le="1.0")] == 1
    assert values[at(f"{name}_bucket", **labels, le="4.0")] == 2
    assert values[at(f"{name}_sum", **labels)] == 68


def test_state_of_every_version_is_reported(versions: list[Version]) -> None:
    values = samples(Metrics(lambda: versions, lambda: 3))
    assert {key: value for key, value in values.items() if not key[0].startswith(("process_", "gpu_"))} == {
        at("requests_in_progress"): 0,
        at("request_log_dropped"): 3,
        at("version_state", model_name="m", version="1"): 50,
        at("version_state", model_name="m", version="2"): 30,
    }


def test_unloaded_version_is_removed(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    for version in versions:
        metrics.request(version, "REST", "OK", 0.001)
        metrics.batch(version, "raw", 1)
    metrics.remove(versions[0])
    numbers = {dict(labels).get("version") for name, labels in samples(metrics) if name != "version_state"}
    assert numbers == {"2", None}
    # The counters restart from zero when the version is loaded again.
    metrics.request(versions[0], "REST", "OK", 0.001)
    labels = {"model_name": "m", "version": "1", "entrypoint": "REST", "signature": ""}
    values = samples(metrics)
    assert values[at("request_count", **labels, status="OK")] == 1
    assert values[at("request_latency_count", **labels, API="predict")] == 1


def test_queues_are_reported_by_signature(versions: list[Version]) -> None:
    metrics = Metrics(lambda: versions, lambda: 3)
    families = text_string_to_metric_families(metrics.text(9, {(versions[1], "raw"): 4}).decode())
    values = {sample.name.removeprefix(PREFIX): sample for family in families for sample in family.samples}
    assert values["requests_in_progress"].value == 9
    waiting = values["batching_session:queue_length"]
    assert (waiting.value, waiting.labels) == (4, {"model_name": "m", "version": "2", "signature": "raw"})
    # The queue of an unloaded version disappears.
    assert not any(name.endswith("queue_length") for name, _ in samples(metrics))


def test_process_is_measured_like_by_the_operating_system(versions: list[Version]) -> None:
    values = {name: value for (name, _), value in samples(Metrics(lambda: versions, lambda: 3)).items()}
    process = psutil.Process()
    # The measurements are a moment apart; listing the folder of open files needs another one.
    assert abs(values["process_open_fds"] - process.num_fds()) <= 1
    assert values["process_resident_memory_bytes"] == pytest.approx(process.memory_info().rss, rel=0.05, abs=1e6)
    times = process.cpu_times()
    assert values["process_cpu_seconds_total"] == pytest.approx(times.user + times.system, abs=0.5)
    assert values["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


_NVML = r"""
// A stub of NVIDIA's library with two GPUs, of which the second is in MIG mode and does not support utilisation.
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
static int devices[2] = {0, 1};
extern "C" {
int nvmlInit_v2() { return INIT; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = &devices[index]; return 0; }
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  if (*(int*)device) return 3;
  rates->gpu = 75; rates->memory = 20; return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  unsigned long long gigabytes = 1ull << 30;
  memory->total = 80 * gigabytes; memory->used = (5 + *(int*)device) * gigabytes;
  memory->free = memory->total - memory->used; return 0;
}
}
"""


def read_gpus(folder: Path, init: int) -> dict[tuple[str, str], float]:
    """Return the metrics of the GPUs of a stub library whose initialisation returns a code."""
    source, library = folder / f"nvml{init}.cc", folder / f"libnvidia-ml{init}.so"
    source.write_text(_NVML)
    subprocess.run(["g++", "-shared", "-fPIC", f"-DINIT={init}", "-o", library, source], check=True)
    registry = CollectorRegistry()
    register_gpus(registry, str(library))
    return {
        (sample.name, sample.labels["gpu"]): sample.value for family in registry.collect() for sample in family.samples
    }


@pytest.mark.needs("g++")
def test_gpus_are_read_from_the_library_of_the_driver(tmp_path: Path) -> None:
    assert read_gpus(tmp_path, init=0) == {
        ("gpu_utilization_ratio", "0"): 0.75,
        ("gpu_memory_used_bytes", "0"): 5 << 30,
        ("gpu_memory_used_bytes", "1"): 6 << 30,
        ("gpu_memory_total_bytes", "0"): 80 << 30,
        ("gpu_memory_total_bytes", "1"): 80 << 30,
    }


@pytest.mark.needs("g++")
def test_machine_without_a_gpu_has_no_metrics_of_gpus(tmp_path: Path) -> None:
    assert read_gpus(tmp_path, init=9) == {}
    registry = CollectorRegistry()
    register_gpus(registry, "libnvidia-ml-that-is-missing.so.1")
    assert list(registry.collect()) == []
