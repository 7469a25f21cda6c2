"""Tests that manifests conform to the published schemas, and that their tasks follow the config.

The tests themselves import the packages of the schemas. At the top of the module, the imports would take 5 CPU seconds
in every process that collects the tests.
"""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import kubernetes
import pytest
from google.protobuf import json_format

from components.base.errors import InputError
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from pipeline.authoring.config import Config, load

IMAGE = "registry.example/taxi:1"
JOB = "gs://bucket/taxi/job.json"
COMMAND = ["python", "-m", "components.trainer.cluster_task", JOB]

NONE = ("training.strategy.kind=none", "training.evaluator=true")
MIRRORED = ("training.strategy.kind=mirrored",)
WORKERS = ("training.strategy={kind: multi_worker, workers: 4}", "training.max_restarts=7")
SERVERS = ("training.strategy={kind: parameter_server, workers: 3, ps: 2}",)
EVALUATOR = ("training.evaluator=true",)
ELASTIC = (
    "training.strategy={kind: parameter_server, workers: 2, max_workers: 4, ps: 2}",
    "training.max_restarts=7",
)

SHAPES = [NONE, MIRRORED, WORKERS, SERVERS, ELASTIC, (*WORKERS, *EVALUATOR), (*SERVERS, *EVALUATOR)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: " ".join(shape))


def config(*assignments: str) -> Config:
    return load("configs/taxi.yaml", assignments).config


def job_of(*assignments: str) -> manifests.Job:
    loaded = config(*assignments)
    where = WhereConfig(kind="jobset", image=IMAGE)
    return manifests.Job(manifests.create_name(loaded.pipeline.name, "-1"), loaded.training, where, JOB)


def replicas(shape: tuple[str, ...]) -> dict[str, int]:
    specs = manifests.tfjob_manifest(job_of(*shape))["spec"]["tfReplicaSpecs"]
    return {kind: spec["replicas"] for kind, spec in specs.items()}


def pools(shape: tuple[str, ...]) -> list[int]:
    specs = manifests.vertex_manifest(job_of(*shape))["jobSpec"]["workerPoolSpecs"]
    return [spec.get("replicaCount", 0) for spec in specs]


def jobs(shape: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the specs of the jobs of a JobSet by name."""
    replicated_jobs = manifests.jobset_manifest(job_of(*shape))["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"] for job in replicated_jobs}


def tf_configs(shape: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the TF_CONFIG of every pod of a JobSet, with the index substituted as Kubernetes does it."""
    configs = []
    for job in jobs(shape).values():
        [container] = job["template"]["spec"]["containers"]
        *_, index, variable = container["env"]
        assert index["valueFrom"]["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/job-completion-index']")
        for number in range(job["completions"]):
            configs.append(json.loads(variable["value"].replace(f"$({index['name']})", str(number))))
    return configs


@every_shape
def test_tfjob_conforms_to_the_model_of_kubeflow(shape: tuple[str, ...]):
    from kubeflow.training import ApiClient

    manifest = manifests.tfjob_manifest(job_of(*shape))
    client = ApiClient()
    parsed = client.deserialize(SimpleNamespace(data=json.dumps(manifest)), "KubeflowOrgV1TFJob")
    # The model drops unknown fields, so the result would be smaller than the manifest.
    assert client.sanitize_for_serialization(parsed) == manifest


@every_shape
def test_custom_job_conforms_to_the_message_of_vertex_ai(shape: tuple[str, ...]):
    from google.cloud.aiplatform_v1.types import CustomJob

    manifest = manifests.vertex_manifest(job_of(*shape))
    # ParseDict raises an error on unknown fields.
    parsed = json_format.ParseDict(manifest, CustomJob.pb(CustomJob()))
    assert [pool.replica_count for pool in parsed.job_spec.worker_pool_specs] == pools(shape)


@every_shape
def test_jobset_conforms_to_the_model_of_kubeflow_trainer(shape: tuple[str, ...]):
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    manifest = manifests.jobset_manifest(job_of(*shape))
    parsed = JobsetV1alpha2JobSet.model_validate(manifest)
    assert parsed.model_dump(by_alias=True, exclude_unset=True) == manifest


@every_shape
def test_trainjob_and_its_runtime_conform_to_the_models_of_kubeflow_trainer(shape: tuple[str, ...]):
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
    from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import TrainerV1alpha1TrainingRuntime

    job = job_of(*shape)
    job = dataclasses.replace(job, where=job.where.model_copy(update={"kind": "trainjob"}))
    [runtime], train_job = manifests.companion_manifests(job), manifests.trainjob_manifest(job)
    for model, manifest in ((TrainerV1alpha1TrainingRuntime, runtime), (TrainerV1alpha1TrainJob, train_job)):
        parsed = model.model_validate(manifest)
        assert parsed.model_dump(by_alias=True, exclude_unset=True) == manifest
    assert train_job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == job.name
    # The controller creates a JobSet with the name of the TrainJob, so it has the tasks of a JobSet of this project.
    assert runtime["spec"]["template"]["spec"] == manifests.jobset_manifest(job_of(*shape))["spec"]


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("jobset", "jobset.sigs.k8s.io/jobset-name"),
        ("trainjob", "jobset.sigs.k8s.io/jobset-name"),
        ("tfjob", "training.kubeflow.org/job-name"),
    ],
)
def test_network_policy_admits_only_the_tasks_of_the_job(kind: str, label: str) -> None:
    where = WhereConfig.model_validate({"kind": kind, "image": IMAGE, "isolated": True, "queue": "gpus"})
    job = manifests.Job("train-taxi-1", config(*SERVERS).training, where, JOB)
    *_, policy = manifests.companion_manifests(job)
    client = kubernetes.client.ApiClient()
    parsed = client.deserialize(SimpleNamespace(data=json.dumps(policy)), "V1NetworkPolicy")
    # The model drops unknown fields, so the result would be smaller than the manifest.
    assert client.sanitize_for_serialization(parsed) == policy
    tasks = {"matchLabels": {label: "train-taxi-1"}}
    assert policy["spec"] == {
        "podSelector": tasks,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": tasks}], "ports": [{"protocol": "TCP", "port": 2222}]}],
    }
    assert manifests.MANIFESTS[kind](job)["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus"}


@pytest.mark.parametrize("user", [None, (1000, 1000), (0, 0)])
@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
def test_hardened_tasks_meet_the_restricted_standard(kind: str, user: tuple[int, int] | None) -> None:
    """Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    for hardened in (True, False):
        where = WhereConfig.model_validate({"kind": kind, "image": IMAGE, "hardened": hardened})
        job = manifests.Job("train-taxi-1", config(*SERVERS).training, where, JOB, user)
        for pod in list_pods(manifests.MANIFESTS[kind](job)):
            [container] = pod["containers"]
            security = container.get("securityContext", {})
            assert security.get("allowPrivilegeEscalation", True) is not hardened
            assert (security.get("capabilities") == {"drop": ["ALL"]}) is hardened
            assert security.get("readOnlyRootFilesystem", False) is hardened
            pod_security = pod.get("securityContext", {})
            assert (pod_security.get("seccompProfile") == {"type": "RuntimeDefault"}) is hardened
            # Kubernetes would refuse to start a task as root.
            assert pod_security.get("runAsNonRoot", False) is (hardened and user != (0, 0))
            assert pod_security.get("runAsUser") == (user[0] if user else None)
            assert ("/tmp" in [mount["mountPath"] for mount in container.get("volumeMounts", ())]) is hardened  # noqa: S108


def list_pods(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the specification of the pods of each role of a TFJob or a JobSet."""
    if manifest["kind"] == "TFJob":
        return [spec["template"]["spec"] for spec in manifest["spec"]["tfReplicaSpecs"].values()]
    jobs = manifest["spec"]["replicatedJobs"]
    return [job["template"]["spec"]["template"]["spec"] for job in jobs]


PER_ROLE: dict[str, Any] = {
    "resources": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
    "shared_memory": "8Gi",
    "node_selector": {"cloud.google.com/gke-spot": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "priority_class": "training",
    "grace_seconds": 120,
    "spread": "topology.kubernetes.io/zone",
    "volumes": {"/mnt/train": {"persistentVolumeClaim": {"claimName": "train"}}},
    "roles": {"ps": {"resources": {"cpu": "2", "memory": "64Gi"}, "node_selector": {}, "tolerations": []}},
}


def without_quantities(manifest: Any) -> Any:
    """Return a manifest without quantities such as 16Gi, for which the model of Kubeflow Trainer expects an object."""
    if isinstance(manifest, list):
        return [without_quantities(value) for value in manifest]
    if not isinstance(manifest, dict):
        return manifest
    return {
        key: without_quantities(value)
        for key, value in manifest.items()
        if key not in ("requests", "limits", "sizeLimit")
    }


def pods_per_role(kind: str) -> dict[str, dict[str, Any]]:
    """Return role → specification of its pods, for the settings PER_ROLE."""
    from kubeflow.training import ApiClient
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    loaded = config(*SERVERS)
    where = WhereConfig(kind=kind, image=IMAGE, **PER_ROLE)
    job = manifests.Job(manifests.create_name(loaded.pipeline.name, "-1"), loaded.training, where, JOB)
    manifest = manifests.MANIFESTS[kind](job)
    if kind == "jobset":
        plain = without_quantities(manifest)
        parsed = JobsetV1alpha2JobSet.model_validate(plain)
        assert parsed.model_dump(by_alias=True, exclude_unset=True) == plain
        jobs = manifest["spec"]["replicatedJobs"]
        return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    client = ApiClient()
    deserialized = client.deserialize(SimpleNamespace(data=json.dumps(manifest)), "KubeflowOrgV1TFJob")
    assert client.sanitize_for_serialization(deserialized) == manifest
    specs = manifest["spec"]["tfReplicaSpecs"]
    return {role.lower(): spec["template"]["spec"] for role, spec in specs.items()}


@pytest.mark.parametrize(
    ("kind", "label"), [("tfjob", "training.kubeflow.org/job-name"), ("jobset", "jobset.sigs.k8s.io/jobset-name")]
)
def test_roles_have_the_machines_of_the_config(kind: str, label: str) -> None:
    pods = pods_per_role(kind)
    assert set(pods) == {"chief", "worker", "ps"}
    for role, pod in pods.items():
        [container] = pod["containers"]
        expected = PER_ROLE["roles"]["ps"] if role == "ps" else PER_ROLE
        assert container["resources"] == {"requests": expected["resources"], "limits": expected["resources"]}
        assert pod.get("nodeSelector", {}) == expected["node_selector"]
        assert pod.get("tolerations", []) == expected["tolerations"]
        assert pod["priorityClassName"] == "training"
        assert pod["terminationGracePeriodSeconds"] == 120
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) == {"/mnt/train", "/dev/shm", "/tmp"}  # noqa: S108
        empty = {mounts[volume["name"]]: volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume}
        assert empty == {"/dev/shm": {"medium": "Memory", "sizeLimit": "8Gi"}, "/tmp": {}}  # noqa: S108
        [constraint] = pod["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "topology.kubernetes.io/zone"
        assert list(constraint["labelSelector"]["matchLabels"]) == [label]


def test_pools_of_vertex_ai_have_the_machines_of_their_roles() -> None:
    from google.cloud.aiplatform_v1.types import CustomJob

    where = WhereConfig.model_validate(
        {
            "kind": "vertex",
            "image": IMAGE,
            "project": "p",
            "region": "europe-west4",
            "spot": True,
            "machine": "a2-highgpu-1g",
            "accelerator": "NVIDIA_TESLA_A100",
            "roles": {"ps": {"machine": "n1-highmem-16", "accelerator": None}},
        }
    )
    for shape, expected in (
        (SERVERS, ["a2-highgpu-1g", "a2-highgpu-1g", "n1-highmem-16"]),
        (WORKERS, ["a2-highgpu-1g", "a2-highgpu-1g"]),
    ):
        job = manifests.Job("train", config(*shape).training, where, JOB)
        spec = json_format.ParseDict(manifests.vertex_manifest(job), CustomJob.pb(CustomJob())).job_spec
        machines = [pool.machine_spec for pool in spec.worker_pool_specs]
        assert [machine.machine_type for machine in machines] == expected
        counts = [machine.accelerator_count for machine in machines]
        assert counts == [int(machine.startswith("a2")) for machine in expected]
        assert spec.scheduling.strategy == spec.scheduling.Strategy.Value("SPOT")


@pytest.mark.parametrize(
    ("shape", "tfjob_replicas", "vertex_pools"),
    [
        (NONE, {"Worker": 1}, [1]),
        (MIRRORED, {"Worker": 1}, [1]),
        (WORKERS, {"Worker": 4}, [1, 3]),
        (SERVERS, {"Chief": 1, "Worker": 3, "PS": 2}, [1, 3, 2]),
        (ELASTIC, {"Chief": 1, "Worker": 4, "PS": 2}, [1, 4, 2]),
        ((*WORKERS, *EVALUATOR), {"Worker": 4, "Evaluator": 1}, [1, 3, 0, 1]),
        ((*SERVERS, *EVALUATOR), {"Chief": 1, "Worker": 3, "PS": 2, "Evaluator": 1}, [1, 3, 2, 1]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_tasks_follow_the_config(shape: tuple[str, ...], tfjob_replicas: dict[str, int], vertex_pools: list[int]):
    assert replicas(shape) == tfjob_replicas
    assert pools(shape) == vertex_pools
    completions = {name: job["completions"] for name, job in jobs(shape).items()}
    assert completions == {kind.lower(): count for kind, count in tfjob_replicas.items()}


def test_empty_worker_pool_of_vertex_ai_is_an_empty_object():
    worker_pools = manifests.vertex_manifest(job_of(*WORKERS, *EVALUATOR))["jobSpec"]["workerPoolSpecs"]
    assert worker_pools[2] == {}


@every_shape
def test_every_task_runs_the_same_command(shape: tuple[str, ...]):
    for spec in manifests.tfjob_manifest(job_of(*shape))["spec"]["tfReplicaSpecs"].values():
        [container] = spec["template"]["spec"]["containers"]
        assert (container["name"], container["image"], container["command"]) == ("tensorflow", IMAGE, COMMAND)
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    for job in jobs(shape).values():
        [container] = job["template"]["spec"]["containers"]
        assert (container["image"], container["command"]) == (IMAGE, COMMAND)
    for pool in filter(None, manifests.vertex_manifest(job_of(*shape))["jobSpec"]["workerPoolSpecs"]):
        container = pool["containerSpec"]
        assert (container["imageUri"], container["command"]) == (IMAGE, COMMAND)


def test_only_tasks_killed_by_a_signal_are_restarted():
    for spec in manifests.tfjob_manifest(job_of(*SERVERS))["spec"]["tfReplicaSpecs"].values():
        assert spec["restartPolicy"] == "ExitCode"
    for job in jobs(SERVERS).values():
        [rule] = job["podFailurePolicy"]["rules"]
        assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", list(range(1, 128)))
        assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_elastic_workers_know_all_addresses_and_are_restarted_individually():
    jobs_by_name = jobs(ELASTIC)
    worker = jobs_by_name.pop("worker")
    assert (worker["completions"], worker["parallelism"], worker["backoffLimit"]) == (4, 2, 7)
    evicted, permanent = worker["podFailurePolicy"]["rules"]
    assert (evicted["action"], evicted["onPodConditions"]) == (
        "Ignore", [{"type": "DisruptionTarget", "status": "True"}]
    )  # fmt: skip
    assert permanent["action"] == "FailJob"
    for job in jobs_by_name.values():
        assert (job["parallelism"], job["backoffLimit"]) == (job["completions"], 0)
    for tf_config in tf_configs(ELASTIC):
        assert tf_config["cluster"]["worker"] == [
            f"train-taxi-1-worker-0-{index}.train-taxi-1:2222" for index in range(4)
        ]


@pytest.mark.parametrize("shape", [ELASTIC, SERVERS])
def test_only_elastic_workers_leave_before_their_chief(shape: tuple[str, ...]):
    job = job_of(*shape)
    replicas = manifests.tfjob_manifest(job)["spec"]["tfReplicaSpecs"]
    containers = {role.lower(): spec["template"]["spec"]["containers"][0] for role, spec in replicas.items()}
    pools = manifests.vertex_manifest(job)["jobSpec"]["workerPoolSpecs"]
    pooled = dict(zip(("chief", "worker", "ps"), (pool["containerSpec"] for pool in pools), strict=True))
    in_set = {role: spec["template"]["spec"]["containers"][0] for role, spec in jobs(shape).items()}
    assert set(containers) == set(in_set) == set(pooled)
    for by_role in (containers, pooled, in_set):
        leaving = {
            role
            for role, container in by_role.items()
            if "ELASTIC_WORKER" in {variable["name"] for variable in container.get("env", ())}
        }
        assert leaving == ({"worker"} if shape == ELASTIC else set())


def test_number_of_restarts_comes_from_the_config():
    assert manifests.tfjob_manifest(job_of(*WORKERS))["spec"]["runPolicy"]["backoffLimit"] == 7
    assert manifests.jobset_manifest(job_of(*WORKERS))["spec"]["failurePolicy"]["maxRestarts"] == 7


def test_job_succeeds_with_its_chief_or_with_all_workers():
    policies = {
        shape: manifests.tfjob_manifest(job_of(*shape))["spec"]["successPolicy"] for shape in (SERVERS, WORKERS)
    }
    assert policies == {SERVERS: "", WORKERS: "AllWorkers"}
    targets = [
        manifests.jobset_manifest(job_of(*shape, *EVALUATOR))["spec"]["successPolicy"]["targetReplicatedJobs"]
        for shape in (SERVERS, WORKERS)
    ]
    assert targets == [["chief"], ["worker"]]


def test_vertex_ai_restarts_synchronous_workers_together():
    for shape, together in ((WORKERS, True), (SERVERS, False), (MIRRORED, False)):
        scheduling = manifests.vertex_manifest(job_of(*shape))["jobSpec"]["scheduling"]
        assert scheduling == {"restartJobOnWorkerRestart": together}


def test_tf_config_of_a_jobset_contains_the_cluster_and_the_index_of_the_task():
    configs = tf_configs((*SERVERS, *EVALUATOR))
    assert [(tf_config["task"]["type"], tf_config["task"]["index"]) for tf_config in configs] == [
        ("chief", 0),
        *[("worker", index) for index in range(3)],
        *[("ps", index) for index in range(2)],
        ("evaluator", 0),
    ]
    for tf_config in configs:
        assert tf_config["cluster"] == {
            "chief": ["train-taxi-1-chief-0-0.train-taxi-1:2222"],
            "worker": [f"train-taxi-1-worker-0-{index}.train-taxi-1:2222" for index in range(3)],
            "ps": [f"train-taxi-1-ps-0-{index}.train-taxi-1:2222" for index in range(2)],
        }


def test_single_task_does_not_get_a_cluster():
    [container] = jobs(MIRRORED)["worker"]["template"]["spec"]["containers"]
    assert [variable["name"] for variable in container["env"]] == ["HOME"]


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [("taxi", "train-taxi-1"), ("2_many", "train-2-many-1"), ("long_" * 12, "train-" + "long-" * 6 + "lo-1")],
)
def test_job_name_is_a_valid_host_name(pipeline: str, name: str):
    assert manifests.jobset_manifest(job_of(f"pipeline.name={pipeline}"))["metadata"]["name"] == name


def test_tpu_is_rejected():
    for manifest in (manifests.tfjob_manifest, manifests.vertex_manifest, manifests.jobset_manifest):
        with pytest.raises(InputError, match="received tpu"):
            manifest(job_of("training.strategy.kind=tpu"))
