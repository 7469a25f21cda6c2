"""Behind a real HAProxy, servers end and versions change, and no request of a busy client fails."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.pusher import serving_state
from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Stages
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.data import people
from tests.support.runs.command import Ended, command
from tests.support.servers.balancer import Balancer, free_address, haproxy
from tests.support.servers.load import Answer, Load
from tests.support.servers.prometheus import Prometheus, prometheus
from tests.support.servers.serving import Server, example, line, serving

pytestmark = pytest.mark.needs("haproxy")

PATH = "/v1/models/line:predict"
BODY = json.dumps({"instances": [{"b64": base64.b64encode(example(1)).decode()}]}).encode()
OLD: Answer = (200, b'{"predictions": [3.0]}')
NEW: Answer = (200, b'{"predictions": [4.0]}')


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a push folder with a version that answers OLD; a version that answers NEW is ready in the same folder."""
    folder = tmp_path_factory.mktemp("rollouts")
    line(folder / "line", 1, slope=2.0, manifest=True)
    line(folder / "beside" / "line", 2, slope=3.0, manifest=True)
    return folder / "line"


@contextlib.contextmanager
def server(model_folder: Path, name: str) -> Iterator[Server]:
    models, log = (
        f"--model_config_file={model_folder}/rollout/models.config",
        f"--request_log={model_folder.parent}/requests",
    )
    with serving(model_folder.parent / name, models, "--enable_batching", log) as started:
        yield started


@pytest.fixture(scope="module")
def servers(model_folder: Path) -> Iterator[list[Server]]:
    with server(model_folder, "one") as first_server, server(model_folder, "two") as two:
        yield [first_server, two]


def roll_back(model_folder: Path, servers: list[Server]) -> PushFolder:
    """Make version 1 stable, without a canary, and wait until these servers have loaded it."""
    settings = RolloutConfig(
        servers=tuple(f"127.0.0.1:{instance.rest}" for instance in servers),
        grpc_servers=(),
        listen=free_address(),
        listen_metrics=free_address(),
    )
    push_folder = PushFolder(str(model_folder), settings)
    promotion.rollback(push_folder, to=1)
    for instance in servers:
        instance.wait("line", 1)
    return push_folder


@contextlib.contextmanager
def load(push_folder: PushFolder, backends: dict[str, int]) -> Iterator[Load]:
    """Yield a busy client of HAProxy once all servers are up; check at the end that none of its requests failed."""
    with balance(push_folder, backends) as balancer, asking(balancer) as load_:
        yield load_


@contextlib.contextmanager
def balance(push_folder: PushFolder, backends: dict[str, int]) -> Iterator[Balancer]:
    assert push_folder.settings is not None
    rest_port, metrics = push_folder.settings.listen, push_folder.settings.listen_metrics
    with haproxy(Path(push_folder.path, "rollout", "haproxy.cfg"), rest_port, metrics) as balancer:
        for backend, servers in backends.items():
            balancer.wait_until_up(backend, servers)
        yield balancer


@contextlib.contextmanager
def asking(balancer: Balancer, pause: float = 0.0) -> Iterator[Load]:
    with Load(balancer.rest, PATH, BODY, pause=pause) as load_:
        load_.wait(500)
        yield load_
    assert load_.answers.keys() <= {OLD, NEW}, load_.answers


@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_server_ends_under_load(model_folder: Path, servers: list[Server], signum: signal.Signals) -> None:
    with (
        server(model_folder, signum.name) as victim,
        load(roll_back(model_folder, [servers[0], victim]), {"stable": 2}) as asking,
    ):
        victim.process.send_signal(signum)
        asking.wait(5000)
        assert victim.process.poll() in (-signal.SIGKILL, 0)
    assert set(asking.answers) == {OLD}
    assert asking.answers.total() >= 5500


def test_version_is_pushed_promoted_and_rolled_back_under_load(model_folder: Path, servers: list[Server]) -> None:
    here = roll_back(model_folder, servers)
    with load(here, {"stable": 2}) as asking:
        # Use a new version, because the test of a canary may have left version 2.
        line(model_folder.parent / "beside" / "line", 5, slope=3.0, manifest=True)
        shutil.copytree(model_folder.parent / "beside" / "line" / "5", model_folder / ".5")
        (model_folder / ".5").rename(model_folder / "5")
        promotion.promote(here, 5)
        asking.wait(1000, NEW)
        back = time.monotonic()
        promotion.rollback(here)
        while asking.last[NEW] > time.monotonic() - 1:
            asking.wait(100)
        assert asking.last[NEW] - back < 5
    assert asking.answers[OLD] > 500


def test_canary_gets_its_share(model_folder: Path, servers: list[Server]) -> None:
    here = roll_back(model_folder, servers)
    if not (model_folder / "2").exists():
        shutil.copytree(model_folder.parent / "beside" / "line" / "2", model_folder / "2")
    promotion.set_canary(here, 2, 10)
    with load(here, {"stable": 2, "canary": 2}) as asking:
        asking.wait(9500)
    assert asking.answers.total() >= 10_000
    assert abs(100 * asking.answers[NEW] / asking.answers.total() - 10) < 2


def config(here: PushFolder, folder: Path, balancer: Balancer, metrics: Prometheus) -> tuple[str, ...]:
    """Return the options of `rollout`: two short steps."""
    assert here.settings is not None
    sections = {
        "pipeline": {"name": "line"},
        "push": {"directory": here.path, "rollout": here.settings.model_dump(mode="json", exclude_unset=True)},
        "canary": {
            "prometheus": f"http://{metrics.address}",
            "apply": list(balancer.reload),
            "steps": [{"percent": 20, "duration": 2}, {"percent": 50, "duration": 2}],
            "least_requests": 200,
            "max_latency": 100,
            "interval": 0.5,
        },
        "monitor": {"requests": str(Path(here.path).parent / "requests")},
    }
    written = people.write_config(folder / "line.yaml", folder / "people.csv", **sections)
    return ("--config", str(written), "--output", str(folder / "out"))


@pytest.mark.slow
def test_rollout_stops_a_worse_version_and_promotes_a_good_one(
    model_folder: Path, servers: list[Server], tmp_path: Path
) -> None:
    here = roll_back(model_folder, servers)
    # Version 4 answers as version 1 does, and version 3 otherwise.
    for number, slope in ((3, 3.0), (4, 2.0)):
        line(model_folder, number, slope, manifest=True)

    def rollout(number: int) -> Ended:
        return command("models", "rollout", str(number), *config(here, tmp_path, balancer, metrics))

    with (
        balance(here, {"stable": 2}) as balancer,
        prometheus(tmp_path / "prometheus", [balancer.metrics]) as metrics,
        asking(balancer, pause=0.04) as load_,
    ):
        metrics.wait_for("haproxy_backend_http_responses_total")
        ended = rollout(3)
        assert ended.exit_code == 3, ended
        assert "version 3 is rolled back: rollout at 20 %: output y differs by" in ended.out
        assert "step 2" not in ended.out
        assert serving_state.read(here.path).stages == Stages(stable=1)
        seen = load_.answers[NEW]
        assert seen >= 200
        ended = rollout(4)
        assert ended.exit_code == 0, ended
        assert "version 4 is promoted: rollout: canary " in ended.out
        assert serving_state.read(here.path).stages == Stages(stable=4)
        load_.wait(500)
        # No client received the worse version after it was stopped.
        assert load_.answers[NEW] - seen < 50
