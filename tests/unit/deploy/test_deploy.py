"""Tests of the files in deploy/: programs and schemas accept them, and they agree with each other."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from components.base.serving_images import TENSORFLOW_SERVING
from components.pusher import rollout
from components.pusher.config import PushConfig, RolloutConfig
from components.pusher.serving_state import Canary, Stages, State
from tests.support.data.serving_protos import message
from tests.support.programs import programs
from tests.support.servers.balancer import FakeModelServers

DEPLOY = Path(__file__).parents[3] / "deploy"
CRDS = {"VirtualService", "DestinationRule", "Kustomization"}
"""Kinds that are not built into Kubernetes, so that its schemas do not include them."""


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


MANIFESTS = [manifest for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for manifest in documents(path)]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SNIPPETS = [
    PushConfig.model_validate(yaml.safe_load(text)["push"])
    for text in re.findall(r"^```yaml\n(.*?)^```$", (DEPLOY / "README.md").read_text(), re.DOTALL | re.MULTILINE)
]
"""Push sections in the README: for one machine, and for Kubernetes."""


def run(*words: str | Path) -> str:
    process = subprocess.run(
        [programs.find(str(words[0])), *map(str, words[1:])], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def by_kind(kind: str) -> dict[str, Any]:
    return {manifest["metadata"]["name"]: manifest for manifest in MANIFESTS if manifest["kind"] == kind}


def write_rollout(tmp_path: Path, settings: RolloutConfig) -> Path:
    """Write the rollout files for stable version 1 and canary version 2, and return their folder."""
    for version in (1, 2):
        (tmp_path / str(version)).mkdir()
    now = State().change_stages("promote", Stages(stable=1), "me")
    now = now.change_stages("canary", Stages(stable=1, canary=Canary(version=2, percent=10)), "me")
    named_settings = settings.model_copy(update={"model_name": "taxi"})
    rollout.write(tmp_path, now.model_copy(update={"rollout": named_settings}))
    return tmp_path / rollout.FOLDER


# Docker Compose.


def test_compose_file_conforms_to_the_schema() -> None:
    schema = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


def test_images_are_pinned() -> None:
    images = [service["image"] for service in COMPOSE["services"].values()]
    images += [
        container["image"]
        for deployment in by_kind("Deployment").values()
        for container in deployment["spec"]["template"]["spec"]["containers"]
    ]
    assert images
    assert all(re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", image) for image in images)
    assert {image for image in images if "serving" in image} == {TENSORFLOW_SERVING}


def test_tensorflow_serving_is_as_new_as_the_tensorflow_that_exports() -> None:
    requirements = (DEPLOY.parent / "pyproject.toml").read_text()
    releases = re.findall(r'"tensorflow==(\d+)\.(\d+)', requirements)
    image = re.fullmatch(r"tensorflow/serving:(\d+)\.(\d+)\.\d+", TENSORFLOW_SERVING)
    assert image
    assert len(releases) == 2, "expected one TensorFlow for each release line"
    assert tuple(map(int, image.groups())) >= max((int(major), int(minor)) for major, minor in releases)


def test_mounted_files_of_compose_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source


def test_config_in_the_readme_agrees_with_the_compose_file(tmp_path: Path) -> None:
    settings = SNIPPETS[0].rollout
    out = write_rollout(tmp_path, settings)
    servers = [name for name in COMPOSE["services"] if name.startswith("serving")]
    assert settings.servers == tuple(f"{name}:8501" for name in servers)
    assert settings.grpc_servers == tuple(f"{name}:8500" for name in servers)
    for name in servers:
        service = COMPOSE["services"][name]
        assert any(volume.endswith(f":{settings.base_path}:ro") for volume in expand_defaults(service["volumes"]))
        (models,) = [word for word in expand_defaults(service["command"]) if word.startswith("--model_config_file=")]
        assert models == f"--model_config_file={settings.base_path}/{rollout.FOLDER}/models.config"
    ports = {port.rpartition(":")[2] for port in COMPOSE["services"]["haproxy"]["ports"]}
    assert ports == {address.rpartition(":")[2] for address in (settings.listen, settings.listen_grpc)}
    assert "-W" in COMPOSE["services"]["haproxy"]["command"]
    scraped_targets = {
        target
        for job in yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
        for static_config in job["static_configs"]
        for target in static_config["targets"]
    }
    assert scraped_targets == {*settings.servers, f"haproxy:{settings.listen_metrics.rpartition(':')[2]}"}
    process = subprocess.run(
        [programs.find("haproxy"), "-c", "-f", str(out / "haproxy.cfg")], capture_output=True, timeout=60
    )
    assert process.returncode == 0


def expand_defaults(words: list[str]) -> list[str]:
    """Replace the variables of Compose by their defaults."""
    return [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in words]


# Health checks of containers.


HEALTH = expand_defaults(COMPOSE["services"]["serving-1"]["healthcheck"]["test"])[1:]
PROBES = {
    f"{name} {probe}": container[probe]["exec"]["command"]
    for name, deployment in by_kind("Deployment").items()
    for container in deployment["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe")
}


@pytest.fixture(params=[{"stable", "taxi"}, set()], ids=["available", "loading"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeModelServers]:
    servers = FakeModelServers(request.param)
    with servers.run():
        yield servers


@pytest.mark.parametrize("command", [HEALTH, *PROBES.values()], ids=["compose", *PROBES])
def test_server_is_healthy_once_it_has_loaded_its_models(server: FakeModelServers, command: list[str]) -> None:
    port = server.address.rpartition(":")[2]
    local_command = [word.replace("/127.0.0.1/8501", f"/127.0.0.1/{port}") for word in command]
    assert local_command != command
    process = subprocess.run(local_command, check=False, timeout=60)
    assert (process.returncode == 0) is bool(server.labels)


# TensorFlow Serving.


def flags(words: list[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in words)


def test_tensorflow_serving_can_parse_the_batching_and_monitoring_configs() -> None:
    text = (DEPLOY / "serving" / "batching.config").read_text()
    batching = text_format.Parse(text, message("BatchingParameters"))
    assert batching.max_batch_size.value > 1
    text = (DEPLOY / "serving" / "monitoring.config").read_text()
    monitoring = text_format.Parse(text, message("MonitoringConfig"))
    assert monitoring.prometheus_config.enable
    (job, _) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == monitoring.prometheus_config.path
    for deployment in by_kind("Deployment").values():
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/path"] == monitoring.prometheus_config.path


# Kubernetes.


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']}-{manifest.get('metadata', {}).get('name')}"
)
def test_manifest_conforms_to_the_schema(manifest: Any) -> None:
    if manifest["kind"] in CRDS:
        with pytest.raises(kubernetes_validate.SchemaNotFoundError):
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version())
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_kustomization_lists_every_file() -> None:
    (kustomization,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "Kustomization"]
    file_names = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert {*kustomization["resources"], "kustomization.yaml"} == file_names


def test_istio_manifest_equals_the_generated_manifest(tmp_path: Path) -> None:
    out = write_rollout(tmp_path, SNIPPETS[1].rollout)
    assert documents(DEPLOY / "kubernetes" / "istio.yaml") == documents(out / "virtual-service.yaml")


def test_servers_services_and_autoscalers_refer_to_each_other(tmp_path: Path) -> None:
    deployments, (service,) = by_kind("Deployment"), by_kind("Service").values()
    settings = SNIPPETS[1].rollout
    out = write_rollout(tmp_path, settings)
    assert set(deployments) == set(by_kind("HorizontalPodAutoscaler")) == {"taxi-stable", "taxi-canary"}
    for name, deployment in deployments.items():
        track = name.removeprefix("taxi-")
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels == {"app": "taxi", "track": track}
        assert service["spec"]["selector"].items() <= labels.items()
        assert by_kind("HorizontalPodAutoscaler")[name]["spec"]["scaleTargetRef"]["name"] == name
        (container,) = template["spec"]["containers"]
        server_flags = flags(container["args"])
        file = server_flags["model_config_file"].removeprefix(f"{settings.base_path}/{rollout.FOLDER}/")
        parsed = text_format.Parse((out / file).read_text(), model_server_config_pb2.ModelServerConfig())
        (model,) = parsed.model_config_list.config
        assert model.base_path == settings.base_path
        assert list(model.model_version_policy.specific.versions) == [1 if track == "stable" else 2]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        for path in server_flags.values():
            assert not path.startswith("/") or any(path.startswith(f"{mount}/") for mount in mounts), path
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert ports == {"grpc": server_flags["port"], "http": server_flags["rest_api_port"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    (budget,) = by_kind("PodDisruptionBudget").values()
    assert budget["spec"]["selector"]["matchLabels"] == {"app": "taxi", "track": "stable"}
    data = by_kind("ConfigMap")["serving"]["data"]
    assert data == {path.name: path.read_text() for path in (DEPLOY / "serving").iterdir()}


def test_servers_run_with_minimal_privileges() -> None:
    for deployment in by_kind("Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= container["resources"].keys()


def test_scheduled_run_can_only_write_to_its_volumes() -> None:
    [job] = documents(DEPLOY / "runs" / "cronjob.yaml")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/data", "/tmp"}  # noqa: S108


# Prometheus and Grafana.


def test_prometheus_accepts_its_files() -> None:
    folder = DEPLOY / "prometheus"
    assert "SUCCESS" in run("promtool", "check", "rules", folder / "rules.yml")
    assert "SUCCESS" in run("promtool", "check", "config", folder / "prometheus.yml")


def test_alert_rules_pass_their_tests() -> None:
    run("promtool", "test", "rules", DEPLOY / "prometheus" / "rules_test.yml")


def test_every_alert_is_tested_and_names_a_remedy() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    tests = yaml.safe_load((DEPLOY / "prometheus" / "rules_test.yml").read_text())["tests"]
    fired = {
        expectation["alertname"]
        for test in tests
        for expectation in test.get("alert_rule_test", ())
        if expectation["exp_alerts"]
    }
    assert {alert["alert"] for alert in alerts} == fired
    assert all({"summary", "remedy"} <= alert["annotations"].keys() for alert in alerts)


GRAFANA = DEPLOY.parent / ".cache" / "grafana" / "check"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "serving.json").read_text())


def test_prometheus_accepts_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [target["expr"].replace("$model", ".*") for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in run("promtool", "check", "rules", tmp_path / "queries.yml")


@pytest.mark.slow
@pytest.mark.skipif(not GRAFANA.exists(), reason="no types of Grafana: `make clients` makes them")
def test_grafana_reads_the_dashboard_strictly(tmp_path: Path) -> None:
    file = DEPLOY / "grafana" / "dashboards" / "serving.json"
    subprocess.run([GRAFANA, file], check=True, capture_output=True)
    # An unknown field of a query, and a wrong type, are errors.
    (tmp_path / "wrong.json").write_text(
        file.read_text().replace('"expr"', '"query"', 1).replace('"editable": false', '"editable": "no"', 1)
    )
    wrong = subprocess.run([GRAFANA, tmp_path / "wrong.json"], capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "unexpected field 'query'" in wrong.stderr
    assert "editable: json: cannot unmarshal string" in wrong.stderr


def test_dashboard_queries_only_recorded_metrics() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    recorded = {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
    queries = " ".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    assert set(re.findall(r"\b(?:serving|rollout):\w+:\w+", queries.replace(":tensorflow:serving:", ""))) == recorded


def test_dashboard_is_provisioned_and_its_panels_do_not_overlap() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "serving.yaml").read_text())["providers"]
    mounts = [volume.split(":") for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert [f"./grafana/{DEPLOY.joinpath('grafana', 'dashboards').name}", provider["options"]["path"], "ro"] in mounts
    assert source["url"] == "http://prometheus:9090"
    cells = set()
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}
        grid = panel["gridPos"]
        covered = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not covered & cells
        assert grid["x"] + grid["w"] <= 24
        cells |= covered
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
