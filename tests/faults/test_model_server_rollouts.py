"""Behind a real HAProxy, TensorFlow Serving's own servers follow the stages, and no request of a busy client fails."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.pusher.config import RolloutConfig
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.runs.command import ROOT
from tests.support.servers.balancer import Balancer, free_address, haproxy
from tests.support.servers.load import Answer, Load
from tests.support.servers.model_server import model_server, needs_model_server
from tests.support.servers.serving import Server, add_manifest, b64, example, line

pytestmark = [pytest.mark.slow, pytest.mark.needs("haproxy"), needs_model_server]

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
PATH = "/v1/models/line:predict"
LABELLED = ("/v1/models/line/labels/stable:predict", {"instances": [b64(example(1))]})
BODY = json.dumps(LABELLED[1]).encode()
OLD: Answer = (200, b'{\n    "predictions": [3.0\n    ]\n}')
NEW: Answer = (200, b'{\n    "predictions": [4.0\n    ]\n}')


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a push folder with a version that answers OLD."""
    return line(tmp_path_factory.mktemp("rollouts") / "line", 1, slope=2.0, manifest=True).parent


def compose_options(model_folder: Path) -> list[str]:
    """Return the options of deploy/compose.yaml, with the paths of this machine."""
    options = COMPOSE["services"]["serving-1"]["command"]
    folders = {"/models/${MODEL:-taxi}": str(model_folder), "/etc/serving": str(ROOT / "deploy" / "serving")}
    for there, here in folders.items():
        options = [option.replace(there, here) for option in options]
    return [option for option in options if not option.startswith(("--port", "--rest_api_port"))]


@pytest.fixture(scope="module")
def servers(model_folder: Path) -> Iterator[list[Server]]:
    """Yield two servers with the options of deploy/compose.yaml, which poll more often."""
    # The files exist before a server starts: it would end otherwise.
    promotion.promote(PushFolder(str(model_folder), RolloutConfig()), 1)
    options = [*compose_options(model_folder), "--model_config_file_poll_wait_seconds=1"]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(model_server(model_folder.parent / name, *options)) for name in ("one", "two")]


@pytest.fixture
def push_folder(model_folder: Path, servers: list[Server]) -> PushFolder:
    """Return the push folder; version 1 is stable and loaded, and there is no canary."""
    settings = RolloutConfig(
        servers=tuple(f"127.0.0.1:{server.rest}" for server in servers),
        grpc_servers=(),
        listen=free_address(),
        listen_metrics=free_address(),
    )
    push_folder = PushFolder(str(model_folder), settings)
    promotion.rollback(push_folder, to=1)
    for server in servers:
        server.wait("line", 1)
    return push_folder


@contextlib.contextmanager
def balance(push_folder: PushFolder) -> Iterator[Balancer]:
    """Yield a HAProxy whose stable servers are up."""
    assert push_folder.settings is not None
    config = Path(push_folder.path, "rollout", "haproxy.cfg")
    with haproxy(config, push_folder.settings.listen, push_folder.settings.listen_metrics) as balancer:
        balancer.wait_until_up("stable", 2)
        yield balancer


def test_new_version_is_promoted_and_rolled_back_under_load(
    push_folder: PushFolder, model_folder: Path, servers: list[Server]
) -> None:
    with balance(push_folder) as balancer, Load(balancer.rest, PATH, BODY) as load:
        load.wait(500)
        line(model_folder, 5, slope=3.0, manifest=True)
        promotion.promote(push_folder, 5)
        # All servers answer with the new version: none has refused the file.
        for server in servers:
            server.until(lambda server=server: server.ask("POST", *LABELLED)[1] == {"predictions": [4]})
        load.wait(1000, NEW)
        promotion.rollback(push_folder)
        for server in servers:
            server.until(lambda server=server: server.ask("POST", *LABELLED)[1] == {"predictions": [3]})
        load.wait(500)
    assert load.answers.keys() == {OLD, NEW}, load.answers
    assert load.answers[OLD] > 500


def test_canary_gets_its_share(push_folder: PushFolder, model_folder: Path) -> None:
    line(model_folder, 6, slope=3.0, manifest=True)
    promotion.set_canary(push_folder, 6, 10)
    with balance(push_folder) as balancer:
        balancer.wait_until_up("canary", 2)
        with Load(balancer.rest, PATH, BODY) as load:
            load.wait(200, NEW)
            before = dict(load.answers)
            load.wait(9000)
    assert load.answers.keys() == {OLD, NEW}, load.answers
    canary, total = load.answers[NEW] - before[NEW], load.answers.total() - sum(before.values())
    assert abs(100 * canary / total - 10) < 2


def test_canary_that_cannot_be_loaded_gets_no_request(push_folder: PushFolder, model_folder: Path) -> None:
    beside = line(model_folder.parent / "beside" / "line", 7, slope=3.0)
    next((beside / "variables").glob("*.data-*")).write_bytes(b"")
    add_manifest(beside, "line")
    beside.rename(model_folder / "7")
    promotion.set_canary(push_folder, 7, 50)
    with balance(push_folder) as balancer:
        balancer.wait_until_up("canary", 0)
        with Load(balancer.rest, PATH, BODY) as load:
            load.wait(1000)
        assert load.answers.keys() == {OLD}, load.answers
        promotion.stop(push_folder)


def test_server_of_a_track_changes_its_version_without_a_gap(push_folder: PushFolder, model_folder: Path) -> None:
    """On Kubernetes a server has one version, and the mesh chooses the server."""
    config = f"--model_config_file={model_folder / 'rollout' / 'models-stable.config'}"
    with model_server(model_folder.parent / "track", config, "--model_config_file_poll_wait_seconds=1") as server:
        server.wait("line", 1)
        with Load(f"127.0.0.1:{server.rest}", PATH, BODY) as load:
            load.wait(200, OLD)
            line(model_folder, 8, slope=3.0, manifest=True)
            promotion.promote(push_folder, 8)
            load.wait(500, NEW)
            server.until(lambda: server.states("line") == {8: "AVAILABLE", 1: "END"})
            promotion.rollback(push_folder)
            server.until(lambda: server.states("line") == {1: "AVAILABLE", 8: "END"})
            load.wait(500, OLD)
    assert load.answers.keys() == {OLD, NEW}, load.answers
