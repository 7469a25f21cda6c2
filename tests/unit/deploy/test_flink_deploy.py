"""deploy/flink/: each file fits the schema it is for, and all of them agree.

tests/e2e/test_flink.py runs the services.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import check_jsonschema
import flink_cluster
import jsonschema
import kubernetes_validate
import pytest
import yaml

from pipeline.authoring.config.runtime import FlinkConfig, RuntimeConfig

DEPLOY = Path(__file__).parents[3] / "deploy" / "flink"
CRD = flink_cluster.ENGINES / "flink-operator.yml"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFESTS = {
    (path.stem, each["kind"]): each
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
}
FLINK = MANIFESTS["flink", "FlinkDeployment"]["spec"]
JOB_SERVER = MANIFESTS["job-server", "Deployment"]["spec"]["template"]["spec"]["containers"][0]
SNIPPETS = [
    yaml.safe_load(text)
    for text in re.findall(r"^```yaml\n(.*?)^```$", (DEPLOY / "README.md").read_text(), re.DOTALL | re.MULTILINE)
]
"""Of the README: the config for Compose, that for Kubernetes, and an overlay."""


def test_compose_file_fits_its_schema() -> None:
    schema = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("kind", [key for key in MANIFESTS if key[1] not in ("FlinkDeployment", "Kustomization")])
def test_manifest_fits_its_schema(kind: tuple[str, str]) -> None:
    manifest = MANIFESTS[kind]
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.engine
@pytest.mark.skipif(not CRD.exists(), reason="no schema of the Flink operator: `make engines` fetches it")
def test_cluster_fits_the_schema_of_the_flink_operator() -> None:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    # The API server knows these fields of every kind.
    schema["properties"].update(apiVersion={}, kind={}, metadata={})
    jsonschema.validate(MANIFESTS["flink", "FlinkDeployment"], schema)
    wrong = yaml.safe_load((DEPLOY / "kubernetes" / "flink.yaml").read_text())
    wrong["spec"]["taskManager"]["podTemplate"]["spec"]["containers"][1]["argument"] = []
    with pytest.raises(jsonschema.ValidationError, match="'argument' was unexpected"):
        jsonschema.validate(wrong, schema)


def closed(schema: Any) -> Any:
    """Return the schema with unknown fields refused, as `kubectl apply --validate=strict` refuses them."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    # A name that follows `properties` is a field's.
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", schema.get("x-kubernetes-preserve-unknown-fields", False))
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    return found


def test_kustomization_names_every_file_but_that_of_a_run() -> None:
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    resources = MANIFESTS["kustomization", "Kustomization"]["resources"]
    assert {*resources, "kustomization.yaml", "run.yaml"} == there


def test_own_containers_may_write_to_their_volumes_only() -> None:
    """Flink's image writes its own configuration, below its root."""
    run = MANIFESTS["run", "Job"]["spec"]["template"]["spec"]["containers"]
    workers = FLINK["taskManager"]["podTemplate"]["spec"]["containers"][1:]
    for container in (*run, *workers, JOB_SERVER):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108


def test_images_are_those_of_one_flink_and_one_pipeline() -> None:
    pods = [each["spec"]["template"]["spec"] for (_, kind), each in MANIFESTS.items() if kind in ("Deployment", "Job")]
    pods.append(FLINK["taskManager"]["podTemplate"]["spec"])
    containers = [container for pod in pods for container in pod["containers"]]
    images = {each["image"] for each in (*containers, FLINK) if "image" in each}
    images |= {re.sub(r"\$\{\w+:-(.*)\}", r"\1", each["image"]) for each in SERVICES.values()}
    [flink] = images - {"pipeline:1"}
    tested = re.search(r"^apache-flink-libraries==(\S+)", Path("tools/engines.txt").read_text(), re.MULTILINE)
    assert tested
    assert flink == f"flink:{tested[1]}-scala_2.12-java17"
    assert FLINK["flinkVersion"] == f"v{tested[1].rpartition('.')[0].replace('.', '_')}"


def test_settings_of_compose_and_kubernetes_are_the_same() -> None:
    settings = {name: value for name, value in FLINK["flinkConfiguration"].items() if name != "env.java.opts.all"}
    for name in ("jobManager", "taskManager"):
        settings[f"{name.lower()}.memory.process.size"] = FLINK[name]["resource"]["memory"]
    assert {"jobmanager.rpc.address": "jobmanager", **settings} == flink_cluster.settings()
    flinks = [each for name, each in SERVICES.items() if name.startswith(("jobmanager", "taskmanager"))]
    assert all(each["environment"] == flinks[0]["environment"] for each in flinks)
    assert f"taskmanager-{FLINK['taskManager']['replicas']}" in SERVICES


def test_job_servers_are_the_same() -> None:
    command, master = [*JOB_SERVER["command"], *JOB_SERVER["args"]], "--flink-master=flink-rest:8081"
    assert (
        flink_cluster.replace_words(command, {master: "--flink-master=jobmanager:8081"})
        == SERVICES["job-server"]["command"]
    )
    ports = {each["name"]: each["containerPort"] for each in JOB_SERVER["ports"]}
    assert {each["name"]: each["port"] for each in MANIFESTS["job-server", "Service"]["spec"]["ports"]} == ports
    assert {f"--job-port={ports['jobs']}", f"--artifact-port={ports['artifacts']}"} <= set(command)
    jar = command[command.index("-jar") + 1]
    assert [volume.split(":")[-2] for volume in SERVICES["job-server"]["volumes"]] == [jar]
    assert "/gradle/wrapper/" in jar
    ours, flinks = (each["volumeMounts"][0] for each in (JOB_SERVER, FLINK["podTemplate"]["spec"]["containers"][0]))
    assert (ours["mountPath"], ours["subPath"]) == (jar, flinks["subPath"])
    assert [volume.split(":")[-2] for volume in SERVICES["jobmanager"]["volumes"]] == [flinks["mountPath"]]


def test_each_task_manager_has_a_worker_pool_in_its_network() -> None:
    _, workers = FLINK["taskManager"]["podTemplate"]["spec"]["containers"]
    task_managers = [name for name in SERVICES if name.startswith("taskmanager")]
    for name in task_managers:
        pool = SERVICES[name.replace("taskmanager", "workers")]
        assert pool["network_mode"] == f"service:{name}"
        assert pool["entrypoint"] == workers["command"]
        assert pool["command"] == workers["args"]
    assert FlinkConfig(job_endpoint="a:1").worker_pool == f"localhost:{workers['args'][-1]}"


@pytest.mark.parametrize(("snippet", "rest"), [(SNIPPETS[0], "jobmanager"), (SNIPPETS[1], "flink-rest")])
def test_config_of_the_readme_fits(snippet: dict[str, Any], rest: str) -> None:
    runtime = RuntimeConfig.model_validate(snippet["runtime"])
    assert runtime.flink
    assert runtime.flink.job_endpoint == "job-server:8099"
    assert runtime.flink.rest == f"{rest}:8081"
    assert runtime.flink.worker_pool == "localhost:50000"
    assert runtime.flink.parallelism == FLINK["taskManager"]["replicas"]
    mounts = {volume.split(":")[-1] for volume in SERVICES["pipeline"]["volumes"]}
    assert mounts == {str(Path(runtime.output).parent)}
    [job] = [each["spec"]["template"]["spec"] for (_, kind), each in MANIFESTS.items() if kind == "Job"]
    assert {each["mountPath"] for each in job["containers"][0]["volumeMounts"]} == mounts | {"/tmp"}  # noqa: S108
