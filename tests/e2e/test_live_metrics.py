"""A real Prometheus scrapes a real server, evaluates the shipped rules and answers the queries of the dashboard."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import AVAILABLE, Version
from tests.support.runs.command import ROOT
from tests.support.servers import sum_model
from tests.support.servers.prometheus import Prometheus, prometheus
from tests.support.servers.serving import Server, b64, serving
from tests.support.servers.sum_model import ROW, example

pytestmark = pytest.mark.needs("prometheus")

DEPLOY = ROOT / "deploy"
NOT_OF_THE_SERVER = ("stage", "canary", "stable", "GPU")
"""Words in the titles of panels that show HAProxy or GPUs."""
PATH = "/monitoring/prometheus/metrics"


def test_quantiles_are_as_exact_as_the_buckets(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    version = Version("m", 7, tmp_path, AVAILABLE)
    metrics = Metrics(lambda: [version], lambda: 0)
    seconds = {name: random.lognormal(np.log(median), 0.8, 5_000) for name, median in (("raw", 0.005), ("slow", 0.1))}
    for signature, latencies in seconds.items():
        for latency in latencies:
            metrics.request(version, "REST", "OK", latency, signature)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(metrics.text())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with prometheus(tmp_path / "prometheus", [f"127.0.0.1:{server.server_port}"]) as measured:
            measured.wait_for(":tensorflow:serving:request_latency_count")
            for signature, latencies in seconds.items():
                for share in (0.5, 0.95, 0.99):
                    series = f':tensorflow:serving:request_latency_bucket{{version="7",signature="{signature}"}}'
                    microseconds = measured.value(f"histogram_quantile({share}, sum by (le) ({series}))")
                    assert microseconds is not None
                    ratio = microseconds / 1e6 / np.quantile(latencies, share)
                    assert 1 / 1.35 < ratio < 1.35
    finally:
        server.shutdown()
        server.server_close()


def send(server: Server, fare: float) -> None:
    """Send a row to both signatures."""
    row = {**ROW, "fare": fare}
    for signature, instance in (("raw", row), ("serving_default", b64(example(row)))):
        body = {"signature_name": signature, "instances": [instance]}
        status, answer = server.ask("POST", "/v1/models/sum:predict", body)
        assert status == 200, answer


def send_until(server: Server, measured: Prometheus, query: str, fare: float = 2.0) -> int:
    """Send rows until an expression has a sample; return how many requests each signature got."""
    number = 0
    while measured.value(query) is None:
        send(server, fare)
        number += 1
        assert number < 50_000, query
    return number


def test_shipped_rules_and_dashboard_work_on_a_real_server(tmp_path: Path) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    for rule in rules["groups"][1]["rules"]:
        # An alert waits for minutes until it fires.
        rule["for"] = "1s"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    model = sum_model.write(tmp_path)
    options = ("--model_name=sum", f"--model_base_path={model}", "--enable_batching")
    with serving(tmp_path / "server", *options) as server:
        server.wait("sum", 1)
        address = f"127.0.0.1:{server.rest}"
        with prometheus(tmp_path / "prometheus", [address], PATH, tmp_path / "rules.yml", "serving") as measured:
            measured.wait_for('up{job="serving"} == 1')
            sent = send_until(server, measured, "serving:latency_seconds:p95")
            sent += send_until(server, measured, 'ALERTS{alertname="FeatureAnomalies",alertstate="firing"}', fare=200.0)
            for signature in ("raw", "serving_default"):
                series = f':tensorflow:serving:request_count{{version="1",signature="{signature}",status="OK"}}'
                measured.wait_for(f"{series} == {sent}")
            assert measured.value('serving:feature_anomalies:rate5m{feature="fare",kind="out_of_range"}')
            quantiles = [measured.value(f"serving:latency_seconds:{name}") for name in ("p50", "p95", "p99")]
            assert all(quantiles)
            assert quantiles == sorted(quantiles)
            memory = measured.value("process_resident_memory_bytes")
            assert memory == pytest.approx(psutil.Process(server.process.pid).memory_info().rss, rel=0.2, abs=1e6)

            groups = measured.ask("rules")["groups"]
            faults = [
                (rule["name"], rule.get("lastError"))
                for group in groups
                for rule in group["rules"]
                if rule["health"] != "ok"
            ]
            assert faults == []
            dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "serving.json").read_text())
            empty = {
                panel["title"]
                for panel in dashboard["panels"]
                for target in panel["targets"]
                if measured.value(target["expr"].replace("$model", ".*")) is None
            }
            assert all(any(word in title for word in NOT_OF_THE_SERVER) for title in empty), empty
            assert server.stop() == 0
            measured.wait_for('ALERTS{alertname="ServerDown",alertstate="firing"}')
