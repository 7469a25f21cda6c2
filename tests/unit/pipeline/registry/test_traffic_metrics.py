"""Tests for the Prometheus queries: the results of a real Prometheus, and error responses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import MachineError
from components.pusher.config import RolloutConfig
from pipeline.authoring.config.canary import CanaryConfig, Source
from pipeline.registry import traffic_metrics
from pipeline.registry.traffic_metrics import Traffic
from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.programs import programs

SETTINGS = RolloutConfig(model_name="Taxi_2")


def make_histogram(name: str, labels: str, below: dict[str, int]) -> list[dict[str, str]]:
    """Return the series of a histogram that grows by the given counts every 15 seconds."""
    return [
        {"series": f'{name}{{{labels},le="{le}"}}', "values": f"0+{count}x40"}
        for le, count in [*below.items(), ("+Inf", max(below.values()))]
    ]


def make_counter(series: str, growth: int) -> dict[str, str]:
    return {"series": series, "values": f"0+{growth}x40"}


HAPROXY = [
    make_counter(f'haproxy_backend_http_responses_total{{job="mine",proxy="{proxy}",code="{code}"}}', growth)
    for proxy, code, growth in (("stable", "2xx", 90), ("canary", "2xx", 8), ("canary", "4xx", 1), ("canary", "5xx", 1))
] + [
    {"series": f'haproxy_backend_response_time_average_seconds{{job="mine",proxy="{proxy}"}}', "values": f"{value}x40"}
    for proxy, value in (("stable", 0.01), ("canary", 0.02))
]
ISTIO = [
    make_counter(
        f'istio_requests_total{{reporter="{reporter}",destination_workload="taxi-2-{track}",{status_label}}}', growth
    )
    for reporter in ("source", "destination")
    for track, status_label, growth in (
        ("stable", 'response_code="200"', 90),
        ("canary", 'response_code="200"', 8),
        ("canary", 'response_code="503"', 1),
        ("canary", 'response_code="0"', 1),
    )
] + [
    bucket
    for track, milliseconds in (("stable", "10"), ("canary", "20"))
    for bucket in make_histogram(
        "istio_request_duration_milliseconds_bucket",
        f'reporter="source",destination_workload="taxi-2-{track}"',
        {"1": 0, milliseconds: 9000},
    )
]
SERVER = [
    make_counter(
        f':tensorflow:serving:request_count{{model_name="{model}",version="{version}",status="{status}"}}', growth
    )
    for model, version, status, growth in (
        ("Taxi_2", 1, "OK", 90),
        ("Taxi_2", 2, "OK", 8),
        ("Taxi_2", 2, "INTERNAL", 1),
        ("Taxi_2", 2, "INVALID_ARGUMENT", 1),
        ("other", 2, "INTERNAL", 7),
    )
] + [
    bucket
    for version, microseconds in ((1, "10000"), (2, "20000"))
    for bucket in make_histogram(
        ":tensorflow:serving:request_latency_bucket",
        f'model_name="Taxi_2",version="{version}"',
        {"1000": 0, microseconds: 9000},
    )
]


@pytest.mark.parametrize(("source", "series"), [("haproxy", HAPROXY), ("istio", ISTIO), ("server", SERVER)])
def test_prometheus_computes_requests_failures_and_latency(
    tmp_path: Path, source: Source, series: list[dict[str, str]]
) -> None:
    policy = CanaryConfig(source=source, labels={"job": "mine"} if source == "haproxy" else {})
    expected = {("stable", 1): (1800, None, 0.01), ("canary", 2): (200, 40, 0.02)}
    tests = []
    for (track, version), values in expected.items():
        queries = traffic_metrics.build_queries(policy, track, version, SETTINGS, 300.0)
        for query, value in zip(queries, values, strict=True):
            # Round the 99th percentile, because its interpolated value is slightly below the upper end of the bucket.
            rounded = query if query.startswith(("sum", "avg")) else f"round({query}, 0.001)"
            samples = [] if value is None else [{"labels": "{}", "value": value}]
            tests.append({"expr": rounded, "eval_time": "10m", "exp_samples": samples})
    file = tmp_path / "tests.yml"
    case = {"interval": "15s", "input_series": series, "promql_expr_test": tests}
    file.write_text(yaml.safe_dump({"tests": [case]}))
    process = subprocess.run([programs.find("promtool"), "test", "rules", str(file)], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def read_traffic(answer: Any, status: int = 200) -> Traffic:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            self.answer(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with serving(Handler) as port:
        policy = CanaryConfig(prometheus=f"http://127.0.0.1:{port}/")
        return traffic_metrics.read(policy, "canary", 2, SETTINGS, 60)


def make_vector(*values: str) -> dict[str, Any]:
    samples = [{"metric": {}, "value": [1.7e9, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": samples}}


def test_missing_samples_count_as_no_requests() -> None:
    assert read_traffic(make_vector()) == read_traffic(make_vector("NaN")) == Traffic(0.0, 0.0, None)
    assert read_traffic(make_vector("3.5")) == Traffic(3.5, 3.5, 3.5)
    assert (Traffic(0, 0, None).error_share, Traffic(10, 4, None).error_share) == (0.0, 0.4)


@pytest.mark.parametrize(
    ("answer", "status", "received"),
    [
        (b"no query today", 503, "HTTP status 503: no query today"),
        (b"<html>", 200, "JSONDecodeError"),
        ([], 200, "TypeError"),
        ({"data": {}}, 200, "KeyError: 'result'"),
    ],
)
def test_unexpected_responses_are_errors(answer: Any, status: int, received: str) -> None:
    with pytest.raises(MachineError, match=f"expected metrics from http://127.0.0.1:.*, received {received}"):
        read_traffic(answer, status)


def test_unreachable_server_is_an_error() -> None:
    with serving(JsonHandler) as port:
        pass
    with pytest.raises(MachineError, match="Connection refused"):
        traffic_metrics.read(CanaryConfig(prometheus=f"http://127.0.0.1:{port}"), "canary", 2, SETTINGS, 60)
