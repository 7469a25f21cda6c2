"""A real Prometheus that scrapes HAProxy or model servers each second."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.programs import programs
from tests.support.servers.balancer import free_address

_SECONDS = 60
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus; `address` is host:port."""

    address: str

    def value(self, query: str) -> float | None:
        """Return the current value of an expression, or None without a sample."""
        result = self.ask(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
        return float(result[0]["value"][1]) if result else None

    def ask(self, path: str) -> Any:
        """Return the data that the API answers."""
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}")
            return json.loads(connection.getresponse().read())["data"]
        finally:
            connection.close()

    def wait_for(self, query: str) -> None:
        """Wait until an expression has a sample."""
        soon = time.monotonic() + _SECONDS
        while self.value(query) is None:
            assert time.monotonic() < soon, query
            time.sleep(0.1)


@contextlib.contextmanager
def prometheus(
    folder: Path, targets: list[str], path: str = "/metrics", rules: Path | None = None, job: str = "test"
) -> Iterator[Prometheus]:
    """Start Prometheus; it answers queries once the context is entered.

    Args:
      folder: for its file and its data.
      targets: addresses to scrape.
      path: of their metrics.
      rules: File of rules to evaluate each second.
      job: Label of the targets.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [{"job_name": job, "metrics_path": path, "static_configs": [{"targets": targets}]}]
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)] if rules else [],
                "scrape_configs": jobs,
            }
        )
    )
    address = free_address()
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs.find("prometheus"), *options, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        soon = time.monotonic() + _SECONDS
        while not _is_ready(address):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < soon
            time.sleep(0.05)
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait()


def _is_ready(address: str) -> bool:
    with contextlib.suppress(OSError):
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        finally:
            connection.close()
    return False
