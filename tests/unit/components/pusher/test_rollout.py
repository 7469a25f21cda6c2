"""The rollout's files: the programs that use them accept them, and the traffic follows the state."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
import yaml
from balancer import Balancer, FakeModelServers, free_address, haproxy
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from components.pusher import rollout, serving_state
from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary, Stages, State

PERCENTS = pytest.mark.parametrize("percent", [None, 10, 0.01, 99.99, 12.5])


def written(folder: Path, now: State, settings: RolloutConfig | None = None) -> Path:
    for version in range(1, 5):
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
    rollout.write(folder, now.model_copy(update={"rollout": settings or RolloutConfig(model_name="taxi")}))
    return folder / "rollout"


def staged(percent: float | None) -> State:
    now = State().change_stages("promote", Stages(stable=1), "me").change_stages("promote", Stages(stable=2), "me")
    if percent is None:
        return now
    return now.change_stages("canary", Stages(stable=2, canary=Canary(version=4, percent=percent)), "me")


def models(file: Path) -> list[Any]:
    parsed = text_format.Parse(file.read_text(), model_server_config_pb2.ModelServerConfig())
    return list(parsed.model_config_list.config)


def test_model_config_holds_what_serves_and_the_way_back(tmp_path: Path) -> None:
    (model,) = models(written(tmp_path, staged(10)) / "models.config")
    assert (model.name, model.base_path, model.model_platform) == ("taxi", str(tmp_path), "tensorflow")
    assert list(model.model_version_policy.specific.versions) == [1, 2, 4]
    assert dict(model.version_labels) == {"stable": 2, "canary": 4}


def test_without_a_canary_its_label_is_the_stable_version(tmp_path: Path) -> None:
    (model,) = models(written(tmp_path, staged(None)) / "models.config")
    assert list(model.model_version_policy.specific.versions) == [1, 2]
    assert dict(model.version_labels) == {"stable": 2, "canary": 2}


def test_without_a_stable_version_nothing_is_served(tmp_path: Path) -> None:
    out = written(tmp_path, State())
    for name in ("models.config", "models-stable.config", "models-canary.config"):
        assert models(out / name) == []
    check(out / "haproxy.cfg")


@pytest.mark.parametrize(("percent", "canary"), [(None, 2), (10, 4)])
def test_servers_of_a_track_hold_one_version(tmp_path: Path, percent: float | None, canary: int) -> None:
    out = written(tmp_path, staged(percent))
    for track, version in (("stable", 2), ("canary", canary)):
        (model,) = models(out / f"models-{track}.config")
        assert list(model.model_version_policy.specific.versions) == [version]
        assert dict(model.version_labels) == {}


def test_path_of_any_letters_is_kept(tmp_path: Path) -> None:
    settings = RolloutConfig(model_name="taxi", base_path='/mödels/"new" \\ taxi\n')
    (model,) = models(written(tmp_path, staged(10), settings) / "models.config")
    assert model.base_path == settings.base_path


def test_each_version_that_serves_has_a_file_for_kserve(tmp_path: Path) -> None:
    out = written(tmp_path, staged(10))
    (service,) = documents(out / "inference-service.yaml")
    predictor = service["spec"]["predictor"]
    assert predictor["canaryTrafficPercent"] == 10
    (argument,) = predictor["model"]["args"]
    file = argument.removeprefix("--model_config_file=/mnt/models/rollout/")
    (model,) = models(out / file)
    assert (model.base_path, list(model.model_version_policy.specific.versions)) == ("/mnt/models", [4])
    written(tmp_path, staged(None))
    assert sorted(path.name for path in (out / "versions").iterdir()) == ["1.config", "2.config"]
    (service,) = documents(out / "inference-service.yaml")
    assert "canaryTrafficPercent" not in service["spec"]["predictor"]
    assert service["spec"]["predictor"]["model"]["args"][0].endswith("/versions/2.config")


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize(
    ("percent", "weights"), [(10, (90, 10)), (12.5, (8750, 1250)), (0.01, (9999, 1)), (99.99, (1, 9999))]
)
def test_istio_gets_the_weights(tmp_path: Path, percent: float, weights: tuple[int, int]) -> None:
    service, rule = documents(written(tmp_path, staged(percent)) / "virtual-service.yaml")
    always, by_weight = service["spec"]["http"]
    assert {to["destination"]["subset"]: to["weight"] for to in by_weight["route"]} == dict(
        zip(("stable", "canary"), weights, strict=True)
    )
    assert always["match"] == [{"headers": {"x-canary": {"exact": "always"}}}]
    assert [to["destination"]["subset"] for to in always["route"]] == ["canary"]
    assert {each["name"]: each["labels"] for each in rule["spec"]["subsets"]} == {
        "stable": {"track": "stable"},
        "canary": {"track": "canary"},
    }


def test_istio_without_a_canary_knows_one_way(tmp_path: Path) -> None:
    service, _ = documents(written(tmp_path, staged(None)) / "virtual-service.yaml")
    (only,) = service["spec"]["http"]
    assert only["route"] == [{"destination": {"host": "taxi", "subset": "stable"}}]


def check(config: Path, warnings: bool = False) -> None:
    ended = subprocess.run(
        [programs.find("haproxy"), "-c", "-f", str(config)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("Configuration file is valid\n")
    assert warnings or ended.stderr == ""


@PERCENTS
def test_haproxy_takes_its_file(tmp_path: Path, percent: float | None) -> None:
    check(written(tmp_path, staged(percent)) / "haproxy.cfg")


def test_haproxy_takes_names_that_nobody_knows_yet(tmp_path: Path) -> None:
    servers, grpc_servers = ("model-1:8501", "[::1]:8501"), ("model-1:8500", "[::1]:8500")
    settings = RolloutConfig(model_name="a.b-c_D", servers=servers, grpc_servers=grpc_servers)
    check(written(tmp_path, staged(10), settings) / "haproxy.cfg", warnings=True)
    settings = RolloutConfig(model_name="taxi", grpc_servers=())
    assert "grpc" not in (written(tmp_path, staged(10), settings) / "haproxy.cfg").read_text()
    check(written(tmp_path, staged(10), settings) / "haproxy.cfg")


@contextlib.contextmanager
def balanced(folder: Path, now: State, *servers: FakeModelServers, sticky: str | None = None) -> Iterator[Balancer]:
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.run())
        rest, metrics = free_address(), free_address()
        settings = RolloutConfig(
            model_name="taxi",
            servers=tuple(server.address for server in servers),
            grpc_servers=(),
            listen=rest,
            listen_metrics=metrics,
            sticky_header=sticky,
        )
        config = written(folder, now, settings) / "haproxy.cfg"
        yield stack.enter_context(haproxy(config, rest, metrics))


PREDICT = "/v1/models/taxi:predict"
STABLE, CANARY = "/v1/models/taxi/labels/stable:predict", "/v1/models/taxi/labels/canary:predict"


def test_haproxy_sends_each_version_its_share(tmp_path: Path) -> None:
    servers = [FakeModelServers({"stable", "canary"}), FakeModelServers({"stable", "canary"})]
    with balanced(tmp_path, staged(30), *servers) as balancer:
        answers = [balancer.ask(PREDICT) for _ in range(600)]
        assert {status for status, _ in answers} == {200}
        canary = sum(path == CANARY for _, path in answers)
        # Five standard deviations to either side of 180.
        assert 124 <= canary <= 236
        assert {path for _, path in answers} == {STABLE, CANARY}
        assert all(len(server.paths) > 200 for server in servers)
        assert {balancer.ask(PREDICT, {"x-canary": "always"}) for _ in range(20)} == {(200, CANARY)}
        for path in ("/v1/models/taxi/versions/7:predict", CANARY, "/v1/models/other:predict"):
            assert balancer.ask(path) == (200, path)
        assert balancer.ask("/v1/models/taxi:classify", {"x-canary": "always"})[1].endswith("canary:classify")


def asked_by(users: list[str], folder: Path, percent: float, version: int = 4) -> set[str]:
    """Return the users whose requests are answered by the canary, each time."""
    now = staged(None).change_stages("canary", Stages(stable=2, canary=Canary(version=version, percent=percent)), "me")
    with balanced(folder, now, FakeModelServers({"stable", "canary"}), sticky="X-User-Id") as balancer:
        balancer.wait_until_up("canary", 1)
        first, second = ([balancer.ask(PREDICT, {"x-user-id": user})[1] for user in users] for _ in range(2))
        assert first == second
        assert {balancer.ask(PREDICT)[1] for _ in range(60)} == {STABLE, CANARY}
        return {user for user, path in zip(users, first, strict=True) if path == CANARY}


@pytest.mark.extended
def test_haproxy_keeps_a_user_at_a_version(tmp_path: Path) -> None:
    users = [f"user {number}, of many" for number in range(400)]
    some, more = (asked_by(users, tmp_path, percent) for percent in (20, 50))
    # Five standard deviations.
    assert 40 <= len(some) <= 120
    assert 150 <= len(more) <= 250
    assert some < more
    # The next canary has other users: those of the last one are no more often among them than chance has it.
    other = asked_by(users, tmp_path, 20, version=3)
    assert 40 <= len(other) <= 120
    assert len(some & other) < 40


def test_haproxy_waits_for_a_canary_that_is_loading(tmp_path: Path) -> None:
    servers = [FakeModelServers({"stable"}), FakeModelServers({"stable"})]
    with balanced(tmp_path, staged(99.99), *servers) as balancer:
        balancer.wait_until_up("canary", 0)
        assert {balancer.ask(PREDICT) for _ in range(20)} == {(200, STABLE)}
        assert balancer.ask(PREDICT, {"x-canary": "always"}) == (200, STABLE)
        servers[0].labels.add("canary")
        balancer.wait_until_up("canary", 1)
        assert balancer.ask(PREDICT, {"x-canary": "always"}) == (200, CANARY)
        assert servers[0].paths[-1] == CANARY


def test_haproxy_retries_on_another_server_if_one_is_down(tmp_path: Path) -> None:
    lost, other = FakeModelServers({"stable"}), FakeModelServers({"stable"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(lost.run())
        gone = free_address()
        stack.enter_context(other.run())
        rest, metrics = free_address(), free_address()
        settings = RolloutConfig(
            model_name="taxi", servers=(gone, other.address), grpc_servers=(), listen=rest, listen_metrics=metrics
        )
        config = written(tmp_path, staged(None), settings) / "haproxy.cfg"
        balancer = stack.enter_context(haproxy(config, rest, metrics))
        assert {balancer.ask(PREDICT) for _ in range(40)} == {(200, STABLE)}


@pytest.mark.parametrize("fault", ["hangs up", "no such label"])
def test_haproxy_retries_unanswered_requests_on_another_server(tmp_path: Path, fault: Any) -> None:
    # Its checks pass, so it gets requests.
    other = FakeModelServers({"stable"}, fault)
    with balanced(tmp_path, staged(None), other, FakeModelServers({"stable"})) as balancer:
        assert {balancer.ask(PREDICT) for _ in range(20)} == {(200, STABLE)}
        assert other.paths


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    out = written(tmp_path, staged(10))
    names = {path.name for path in out.iterdir()}
    assert names == {
        "models.config",
        "models-stable.config",
        "models-canary.config",
        "haproxy.cfg",
        "virtual-service.yaml",
        "inference-service.yaml",
        "versions",
    }
    before = {name: (out / name).stat().st_ino for name in names}
    written(tmp_path, staged(20))
    assert all((out / name).stat().st_ino != before[name] for name in names - {"versions"})
    assert serving_state.versions(tmp_path) == [1, 2, 3, 4]
