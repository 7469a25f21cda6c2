"""Tests of the files in deploy/flink/: they conform to their schemas, and agree with each other.

tests/e2e/test_flink.py runs the services.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml

from pipeline.authoring.config.runtime import FlinkConfig, RuntimeConfig
from tests.support.servers import flink_cluster

DEPLOY = Path(__file__).parents[3] / "deploy" / "flink"
CRD = flink_cluster.ENGINES / "flink-operator.yml"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFESTS = {
    (path.stem, manifest["kind"]): manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
}
FLINK = MANIFESTS["flink", "FlinkDeployment"]["spec"]
JOB_SERVER = MANIFESTS["job-server", "Deployment"]["spec"]["template"]["spec"]["containers"][0]
SNIPPETS = [
    yaml.safe_load(text)
    for text in re.findall(r"^```yaml\n(.*?)^```$", (DEPLOY / "README.md").read_text(), re.DOTALL | re.MULTILINE)
]
"""YAML blocks of the README: the config for Compose, the config for Kubernetes, and an overlay."""


def test_compose_file_conforms_to_the_schema() -> None:
    schema = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("kind", [key for key in MANIFESTS if key[1] not in ("FlinkDeployment", "Kustomization")])
def test_manifest_conforms_to_the_schema(kind: tuple[str, str]) -> None:
    manifest = MANIFESTS[kind]
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.engine
@pytest.mark.skipif(not CRD.exists(), reason="no schema of the Flink operator: `make engines` fetches it")
def test_cluster_conforms_to_the_schema_of_the_flink_operator() -> None:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = reject_unknown_fields(version["schema"]["openAPIV3Schema"])
    # The API server accepts these fields for every kind.
    schema["properties"].update(apiVersion={}, kind={}, metadata={})
    jsonschema.validate(MANIFESTS["flink", "FlinkDeployment"], schema)
    invalid_manifest = yaml.safe_load((DEPLOY / "kubernetes" / "flink.yaml").read_text())
    invalid_manifest["spec"]["taskManager"]["podTemplate"]["spec"]["containers"][1]["argument"] = []
    with pytest.raises(jsonschema.ValidationError, match="'argument' was unexpected"):
        jsonschema.validate(invalid_manifest, schema)


def reject_unknown_fields(schema: Any) -> Any:
    """Return the schema, changed to reject unknown fields like `kubectl apply --validate=strict`."""
    if isinstance(schema, list):
        return [reject_unknown_fields(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict_schema = {key: reject_unknown_fields(value) for key, value in schema.items()}
    # In a mapping of fields, `properties` can be the name of a field. Only a schema also has the type `object`.
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        strict_schema.setdefault("additionalProperties", schema.get("x-kubernetes-preserve-unknown-fields", False))
    if schema.get("x-kubernetes-int-or-string"):
        strict_schema["type"] = ["integer", "string"]
    return strict_schema


def test_kustomization_lists_every_file_except_the_run() -> None:
    file_names = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    resources = MANIFESTS["kustomization", "Kustomization"]["resources"]
    assert {*resources, "kustomization.yaml", "run.yaml"} == file_names


def test_containers_of_this_project_can_only_write_to_their_volumes() -> None:
    """Flink's containers are not checked, because Flink's image writes its configuration to the root file system."""
    run = MANIFESTS["run", "Job"]["spec"]["template"]["spec"]["containers"]
    workers = FLINK["taskManager"]["podTemplate"]["spec"]["containers"][1:]
    for container in (*run, *workers, JOB_SERVER):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108


def test_all_files_use_the_same_flink_and_the_same_pipeline_image() -> None:
    pods = [
        manifest["spec"]["template"]["spec"]
        for (_, kind), manifest in MANIFESTS.items()
        if kind in ("Deployment", "Job")
    ]
    pods.append(FLINK["taskManager"]["podTemplate"]["spec"])
    containers = [container for pod in pods for container in pod["containers"]]
    images = {spec["image"] for spec in (*containers, FLINK) if "image" in spec}
    images |= {re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"]) for service in SERVICES.values()}
    [flink] = images - {"pipeline:1"}
    tested = re.search(r"^apache-flink-libraries==(\S+)", Path("tools/engines.txt").read_text(), re.MULTILINE)
    assert tested
    assert flink == f"flink:{tested[1]}-scala_2.12-java17"
    assert FLINK["flinkVersion"] == f"v{tested[1].rpartition('.')[0].replace('.', '_')}"


def test_compose_and_kubernetes_have_the_same_settings() -> None:
    settings = {name: value for name, value in FLINK["flinkConfiguration"].items() if name != "env.java.opts.all"}
    for name in ("jobManager", "taskManager"):
        settings[f"{name.lower()}.memory.process.size"] = FLINK[name]["resource"]["memory"]
    assert {"jobmanager.rpc.address": "jobmanager", **settings} == flink_cluster.settings()
    flink_services = [service for name, service in SERVICES.items() if name.startswith(("jobmanager", "taskmanager"))]
    assert all(service["environment"] == flink_services[0]["environment"] for service in flink_services)
    assert f"taskmanager-{FLINK['taskManager']['replicas']}" in SERVICES


def test_compose_and_kubernetes_have_the_same_job_server() -> None:
    command, master = [*JOB_SERVER["command"], *JOB_SERVER["args"]], "--flink-master=flink-rest:8081"
    assert (
        flink_cluster.replace_words(command, {master: "--flink-master=jobmanager:8081"})
        == SERVICES["job-server"]["command"]
    )
    ports = {port["name"]: port["containerPort"] for port in JOB_SERVER["ports"]}
    assert {port["name"]: port["port"] for port in MANIFESTS["job-server", "Service"]["spec"]["ports"]} == ports
    assert {f"--job-port={ports['jobs']}", f"--artifact-port={ports['artifacts']}"} <= set(command)
    jar = command[command.index("-jar") + 1]
    assert [volume.split(":")[-2] for volume in SERVICES["job-server"]["volumes"]] == [jar]
    assert "/gradle/wrapper/" in jar
    job_server_mount, flink_mount = (
        container["volumeMounts"][0] for container in (JOB_SERVER, FLINK["podTemplate"]["spec"]["containers"][0])
    )
    assert (job_server_mount["mountPath"], job_server_mount["subPath"]) == (jar, flink_mount["subPath"])
    assert [volume.split(":")[-2] for volume in SERVICES["jobmanager"]["volumes"]] == [flink_mount["mountPath"]]


def test_every_task_manager_has_a_worker_pool_in_its_network() -> None:
    _, workers = FLINK["taskManager"]["podTemplate"]["spec"]["containers"]
    task_managers = [name for name in SERVICES if name.startswith("taskmanager")]
    for name in task_managers:
        pool = SERVICES[name.replace("taskmanager", "workers")]
        assert pool["network_mode"] == f"service:{name}"
        assert pool["entrypoint"] == workers["command"]
        assert pool["command"] == workers["args"]
    assert FlinkConfig(job_endpoint="a:1").worker_pool == f"localhost:{workers['args'][-1]}"


@pytest.mark.parametrize(("snippet", "rest"), [(SNIPPETS[0], "jobmanager"), (SNIPPETS[1], "flink-rest")])
def test_config_in_the_readme_agrees_with_the_files(snippet: dict[str, Any], rest: str) -> None:
    runtime = RuntimeConfig.model_validate(snippet["runtime"])
    assert runtime.flink
    assert runtime.flink.job_endpoint == "job-server:8099"
    assert runtime.flink.rest == f"{rest}:8081"
    assert runtime.flink.worker_pool == "localhost:50000"
    assert runtime.flink.parallelism == FLINK["taskManager"]["replicas"]
    mounts = {volume.split(":")[-1] for volume in SERVICES["pipeline"]["volumes"]}
    assert mounts == {str(Path(runtime.output).parent)}
    [job] = [manifest["spec"]["template"]["spec"] for (_, kind), manifest in MANIFESTS.items() if kind == "Job"]
    assert {mount["mountPath"] for mount in job["containers"][0]["volumeMounts"]} == mounts | {"/tmp"}  # noqa: S108
