"""Tests for the wait until model servers know the versions of their config file."""

from __future__ import annotations

import itertools
import time

import pytest

from components.pusher.rollout import served_versions
from components.pusher.rollout.served_versions import wait_until_listed
from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.servers.balancer import free_address


def test_every_running_server_of_the_model_is_waited_for() -> None:
    numbers, paths = itertools.count(1), []

    class Growing(JsonHandler):
        """A server that knows one version more with every request."""

        def do_GET(self) -> None:
            paths.append(self.path)
            versions = [{"version": str(number), "state": "START"} for number in range(1, next(numbers) + 1)]
            self.respond({"model_version_status": versions})

    class OfAnotherModel(JsonHandler):
        def do_GET(self) -> None:
            self.respond({"error": "Could not find any versions of model taxi"}, 404)

    with serving(Growing) as port, serving(OfAnotherModel) as other_port:
        servers = [f"localhost:{port}", f"127.0.0.1:{other_port}", free_address()]
        wait_until_listed(servers, "taxi", {1, 3})
    assert paths == ["/v1/models/taxi"] * 3


@pytest.mark.parametrize("content", [None, [], {"model_version_status": [{}]}])
def test_server_that_cannot_be_asked_gets_time(monkeypatch: pytest.MonkeyPatch, content: object) -> None:
    class NotAModelServer(JsonHandler):
        def do_GET(self) -> None:
            self.respond(content)

    monkeypatch.setattr(served_versions, "_SECONDS", 0.5)
    start = time.monotonic()
    with serving(NotAModelServer) as port:
        wait_until_listed([f"127.0.0.1:{port}", "model-server.invalid:8501"], "taxi", {1})
    assert time.monotonic() - start >= 0.5
