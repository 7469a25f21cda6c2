"""Two groups of servers in two zones behind a real HAProxy, each with both versions: a zone fails under load."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.pusher.config import RolloutConfig
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.servers.balancer import Balancer, free_address, haproxy
from tests.support.servers.load import Answer, Load
from tests.support.servers.serving import example, line, serving
from tests.support.servers.zones import Zone, needs_zones, zones

pytestmark = [pytest.mark.needs("haproxy"), pytest.mark.slow, needs_zones]

PATH = "/v1/models/line:predict"
BODY = json.dumps({"instances": [{"b64": base64.b64encode(example(1)).decode()}]}).encode()
STABLE: Answer = (200, b'{"predictions": [3.0]}')
CANARY: Answer = (200, b'{"predictions": [4.0]}')
CONNECTIONS = 16
PERCENT = 20
RESPONSE_SECONDS = 2.0
# A check every half second, two in a row that fail, and up to two seconds for each.
NOTICED_SECONDS = 5.0


@contextlib.contextmanager
def site(folder: Path) -> Iterator[tuple[list[Zone], Balancer]]:
    """Serve a stable version and a canary with two servers in each of two zones, behind HAProxy."""
    for number, slope in ((1, 2.0), (2, 3.0)):
        line(folder / "line", number, slope, manifest=True)
    models = f"--model_config_file={folder}/line/rollout/models.config"
    with contextlib.ExitStack() as stack:
        places = stack.enter_context(zones(2))
        # The servers read a file that needs their addresses.
        promotion.rollback(PushFolder(str(folder / "line"), RolloutConfig(grpc_servers=())), to=1)
        for number, zone in enumerate(places):
            for name in ("a", "b"):
                started = serving(
                    folder / f"zone-{number}-{name}", models, "--enable_batching", host=zone.address, prefix=zone.prefix
                )
                zone.servers.append(stack.enter_context(started))
        settings = RolloutConfig(
            servers=tuple(f"{server.host}:{server.rest}" for zone in places for server in zone.servers),
            grpc_servers=(),
            listen=free_address(),
            listen_metrics=free_address(),
            response_seconds=RESPONSE_SECONDS,
        )
        push_folder = PushFolder(str(folder / "line"), settings)
        promotion.set_canary(push_folder, 2, PERCENT)
        for server in (server for zone in places for server in zone.servers):
            server.wait("line", 1)
            server.wait("line", 2)
        config = Path(push_folder.path, "rollout", "haproxy.cfg")
        balancer = stack.enter_context(haproxy(config, settings.listen, settings.listen_metrics))
        for backend in ("stable", "canary"):
            balancer.wait_until_up(backend, 4)
        yield places, balancer


@pytest.mark.parametrize("fail", [Zone.lose_power, Zone.lose_network], ids=["power", "network"])
def test_zone_fails_under_load(tmp_path: Path, fail: Callable[[Zone], None]) -> None:
    with site(tmp_path) as (places, balancer), Load(balancer.rest, PATH, BODY, connections=CONNECTIONS) as load:
        load.wait(1000)
        failed_at = time.monotonic()
        fail(places[0])
        balancer.wait_until_up("stable", 2)
        noticed = time.monotonic() - failed_at
        load.wait(2000)
        if fail is Zone.lose_network:
            places[0].recover()
            balancer.wait_until_up("stable", 4)
            load.wait(500)
        load.stop()
        answers, longest = load.answers, load.longest
    failed = {answer: count for answer, count in answers.items() if answer not in (STABLE, CANARY)}
    print(f"{answers.total()} requests, {failed} failed, longest {longest:.1f} s, noticed after {noticed:.1f} s")  # noqa: T201 - the measurement
    assert not failed
    # A request may reach both servers of the failed zone before it reaches the other zone.
    assert longest < 3 * RESPONSE_SECONDS + NOTICED_SECONDS
    assert abs(100 * answers[CANARY] / answers.total() - PERCENT) < 5
