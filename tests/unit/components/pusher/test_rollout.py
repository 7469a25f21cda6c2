"""Tests of the rollout files: the programs that use them accept them, and traffic follows the serving state."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from components.pusher import rollout, serving_state
from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary, Stages, State
from tests.support.programs import programs
from tests.support.servers.balancer import Balancer, FakeModelServers, free_address, haproxy

PERCENTS = pytest.mark.parametrize("percent", [None, 10, 0.01, 99.99, 12.5])


def write_rollout(folder: Path, now: State, settings: RolloutConfig | None = None) -> Path:
    for version in range(1, 5):
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
    rollout.write(folder, now.model_copy(update={"rollout": settings or RolloutConfig(model_name="taxi")}))
    return folder / "rollout"


def create_state(percent: float | None) -> State:
    now = State().change_stages("promote", Stages(stable=1), "me").change_stages("promote", Stages(stable=2), "me")
    if percent is None:
        return now
    return now.change_stages("canary", Stages(stable=2, canary=Canary(version=4, percent=percent)), "me")


def models(file: Path) -> list[Any]:
    parsed = text_format.Parse(file.read_text(), model_server_config_pb2.ModelServerConfig())
    return list(parsed.model_config_list.config)


def test_model_config_contains_serving_versions_and_the_version_for_a_rollback(tmp_path: Path) -> None:
    (model,) = models(write_rollout(tmp_path, create_state(10)) / "models.config")
    assert (model.name, model.base_path, model.model_platform) == ("taxi", str(tmp_path), "tensorflow")
    assert list(model.model_version_policy.specific.versions) == [1, 2, 4]
    assert dict(model.version_labels) == {"stable": 2, "canary": 4}


def test_canary_label_is_the_stable_version_without_a_canary(tmp_path: Path) -> None:
    (model,) = models(write_rollout(tmp_path, create_state(None)) / "models.config")
    assert list(model.model_version_policy.specific.versions) == [1, 2]
    assert dict(model.version_labels) == {"stable": 2, "canary": 2}


def test_model_config_is_empty_without_a_stable_version(tmp_path: Path) -> None:
    out = write_rollout(tmp_path, State())
    for name in ("models.config", "models-stable.config", "models-canary.config"):
        assert models(out / name) == []
    check(out / "haproxy.cfg")


@pytest.mark.parametrize(("percent", "canary"), [(None, 2), (10, 4)])
def test_servers_of_a_track_hold_one_version(tmp_path: Path, percent: float | None, canary: int) -> None:
    out = write_rollout(tmp_path, create_state(percent))
    for track, version in (("stable", 2), ("canary", canary)):
        (model,) = models(out / f"models-{track}.config")
        assert list(model.model_version_policy.specific.versions) == [version]
        assert dict(model.version_labels) == {}


def test_special_characters_in_the_base_path_are_escaped(tmp_path: Path) -> None:
    settings = RolloutConfig(model_name="taxi", base_path='/mödels/"new" \\ taxi\n')
    (model,) = models(write_rollout(tmp_path, create_state(10), settings) / "models.config")
    assert model.base_path == settings.base_path


def test_every_serving_version_has_a_config_for_kserve(tmp_path: Path) -> None:
    out = write_rollout(tmp_path, create_state(10))
    (service,) = documents(out / "inference-service.yaml")
    predictor = service["spec"]["predictor"]
    assert predictor["canaryTrafficPercent"] == 10
    (argument,) = predictor["model"]["args"]
    file = argument.removeprefix("--model_config_file=/mnt/models/rollout/")
    (model,) = models(out / file)
    assert (model.base_path, list(model.model_version_policy.specific.versions)) == ("/mnt/models", [4])
    write_rollout(tmp_path, create_state(None))
    assert sorted(path.name for path in (out / "versions").iterdir()) == ["1.config", "2.config"]
    (service,) = documents(out / "inference-service.yaml")
    assert "canaryTrafficPercent" not in service["spec"]["predictor"]
    assert service["spec"]["predictor"]["model"]["args"][0].endswith("/versions/2.config")


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize(
    ("percent", "weights"), [(10, (90, 10)), (12.5, (8750, 1250)), (0.01, (9999, 1)), (99.99, (1, 9999))]
)
def test_istio_splits_traffic_by_weight(tmp_path: Path, percent: float, weights: tuple[int, int]) -> None:
    service, rule = documents(write_rollout(tmp_path, create_state(percent)) / "virtual-service.yaml")
    canary_route, weighted_route = service["spec"]["http"]
    assert {to["destination"]["subset"]: to["weight"] for to in weighted_route["route"]} == dict(
        zip(("stable", "canary"), weights, strict=True)
    )
    assert canary_route["match"] == [{"headers": {"x-canary": {"exact": "always"}}}]
    assert [to["destination"]["subset"] for to in canary_route["route"]] == ["canary"]
    assert {subset["name"]: subset["labels"] for subset in rule["spec"]["subsets"]} == {
        "stable": {"track": "stable"},
        "canary": {"track": "canary"},
    }


def test_istio_has_a_single_route_without_a_canary(tmp_path: Path) -> None:
    service, _ = documents(write_rollout(tmp_path, create_state(None)) / "virtual-service.yaml")
    (route,) = service["spec"]["http"]
    assert route["route"] == [{"destination": {"host": "taxi", "subset": "stable"}}]


def check(config: Path, warnings: bool = False) -> None:
    process = subprocess.run(
        [programs.find("haproxy"), "-c", "-f", str(config)], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("Configuration file is valid\n")
    assert warnings or process.stderr == ""


@PERCENTS
def test_haproxy_accepts_the_config(tmp_path: Path, percent: float | None) -> None:
    check(write_rollout(tmp_path, create_state(percent)) / "haproxy.cfg")


def test_haproxy_accepts_names_that_cannot_be_resolved_yet(tmp_path: Path) -> None:
    servers, grpc_servers = ("model-1:8501", "[::1]:8501"), ("model-1:8500", "[::1]:8500")
    settings = RolloutConfig(model_name="a.b-c_D", servers=servers, grpc_servers=grpc_servers)
    check(write_rollout(tmp_path, create_state(10), settings) / "haproxy.cfg", warnings=True)
    settings = RolloutConfig(model_name="taxi", grpc_servers=())
    assert "grpc" not in (write_rollout(tmp_path, create_state(10), settings) / "haproxy.cfg").read_text()
    check(write_rollout(tmp_path, create_state(10), settings) / "haproxy.cfg")


@contextlib.contextmanager
def run_balancer(folder: Path, now: State, *servers: FakeModelServers, sticky: str | None = None) -> Iterator[Balancer]:
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
        config = write_rollout(folder, now, settings) / "haproxy.cfg"
        yield stack.enter_context(haproxy(config, rest, metrics))


PREDICT = "/v1/models/taxi:predict"
STABLE, CANARY = "/v1/models/taxi/labels/stable:predict", "/v1/models/taxi/labels/canary:predict"


def test_haproxy_sends_the_configured_share_to_the_canary(tmp_path: Path) -> None:
    servers = [FakeModelServers({"stable", "canary"}), FakeModelServers({"stable", "canary"})]
    with run_balancer(tmp_path, create_state(30), *servers) as balancer:
        answers = [balancer.ask(PREDICT) for _ in range(600)]
        assert {status for status, _ in answers} == {200}
        canary = sum(path == CANARY for _, path in answers)
        # The bounds are five standard deviations away from the mean of 180.
        assert 124 <= canary <= 236
        assert {path for _, path in answers} == {STABLE, CANARY}
        assert all(len(server.paths) > 200 for server in servers)
        assert {balancer.ask(PREDICT, {"x-canary": "always"}) for _ in range(20)} == {(200, CANARY)}
        for path in ("/v1/models/taxi/versions/7:predict", CANARY, "/v1/models/other:predict"):
            assert balancer.ask(path) == (200, path)
        assert balancer.ask("/v1/models/taxi:classify", {"x-canary": "always"})[1].endswith("canary:classify")


def find_canary_users(users: list[str], folder: Path, percent: float, version: int = 4) -> set[str]:
    """Return the users whose requests the canary answers. All requests of a user must get the same version."""
    now = create_state(None).change_stages(
        "canary", Stages(stable=2, canary=Canary(version=version, percent=percent)), "me"
    )
    with run_balancer(folder, now, FakeModelServers({"stable", "canary"}), sticky="X-User-Id") as balancer:
        balancer.wait_until_up("canary", 1)
        first, second = ([balancer.ask(PREDICT, {"x-user-id": user})[1] for user in users] for _ in range(2))
        assert first == second
        assert {balancer.ask(PREDICT)[1] for _ in range(60)} == {STABLE, CANARY}
        return {user for user, path in zip(users, first, strict=True) if path == CANARY}


@pytest.mark.extended
def test_haproxy_always_sends_a_user_to_the_same_version(tmp_path: Path) -> None:
    users = [f"user {number}, of many" for number in range(400)]
    few_users, more_users = (find_canary_users(users, tmp_path, percent) for percent in (20, 50))
    # The bounds are five standard deviations away from the means of 80 and 200.
    assert 40 <= len(few_users) <= 120
    assert 150 <= len(more_users) <= 250
    assert few_users < more_users
    # The next canary gets other users. Users of the last canary are among them only by chance.
    next_users = find_canary_users(users, tmp_path, 20, version=3)
    assert 40 <= len(next_users) <= 120
    assert len(few_users & next_users) < 40


def test_haproxy_waits_for_a_canary_that_is_loading(tmp_path: Path) -> None:
    servers = [FakeModelServers({"stable"}), FakeModelServers({"stable"})]
    with run_balancer(tmp_path, create_state(99.99), *servers) as balancer:
        balancer.wait_until_up("canary", 0)
        assert {balancer.ask(PREDICT) for _ in range(20)} == {(200, STABLE)}
        assert balancer.ask(PREDICT, {"x-canary": "always"}) == (200, STABLE)
        servers[0].labels.add("canary")
        balancer.wait_until_up("canary", 1)
        assert balancer.ask(PREDICT, {"x-canary": "always"}) == (200, CANARY)
        assert servers[0].paths[-1] == CANARY


def test_haproxy_retries_on_another_server_if_one_is_down(tmp_path: Path) -> None:
    lost_server, healthy_server = FakeModelServers({"stable"}), FakeModelServers({"stable"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(lost_server.run())
        closed_address = free_address()
        stack.enter_context(healthy_server.run())
        rest, metrics = free_address(), free_address()
        settings = RolloutConfig(
            model_name="taxi",
            servers=(closed_address, healthy_server.address),
            grpc_servers=(),
            listen=rest,
            listen_metrics=metrics,
        )
        config = write_rollout(tmp_path, create_state(None), settings) / "haproxy.cfg"
        balancer = stack.enter_context(haproxy(config, rest, metrics))
        assert {balancer.ask(PREDICT) for _ in range(40)} == {(200, STABLE)}


@pytest.mark.parametrize("fault", ["hangs up", "no such label"])
def test_haproxy_retries_unanswered_requests_on_another_server(tmp_path: Path, fault: Any) -> None:
    # The server passes the health checks, so it gets requests.
    faulty_server = FakeModelServers({"stable"}, fault)
    with run_balancer(tmp_path, create_state(None), faulty_server, FakeModelServers({"stable"})) as balancer:
        assert {balancer.ask(PREDICT) for _ in range(20)} == {(200, STABLE)}
        assert faulty_server.paths


def test_files_are_replaced_atomically(tmp_path: Path) -> None:
    out = write_rollout(tmp_path, create_state(10))
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
    write_rollout(tmp_path, create_state(20))
    assert all((out / name).stat().st_ino != before[name] for name in names - {"versions"})
    assert serving_state.versions(tmp_path) == [1, 2, 3, 4]
