"""Runs on a real Kubernetes: trainings as jobs of its controllers, whose tasks are killed, and runs that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import ROOT, Ended, Runs, command, first_run, start
from tests.support.servers import kubeflow_pipelines
from tests.support.servers.databases import PASSWORD, SERVERS
from tests.support.servers.forked_command import ForkedCommand
from tests.support.servers.kubernetes_cluster import IMAGE, Cluster, has_node, kill_task, kubernetes
from tests.support.servers.kueue import Queue

pytestmark = [pytest.mark.slow, pytest.mark.cluster, has_node]

STEPS = 400
SECONDS = 300
PARAMETER_SERVER = "{kind: parameter_server, workers: 2, ps: 1}"
MULTI_WORKER = "{kind: multi_worker, workers: 2}"
_JOBS = ("tfjobs.kubeflow.org", "jobsets.jobset.x-k8s.io", "trainjobs.trainer.kubeflow.org")
_SET = "jobset.sigs.k8s.io/jobset-name"
"""Label of the pods of a JobSet."""
_COMPARE = """
import json, os, re
from importlib import metadata
assert os.getuid() == 1000
document = json.load(open("/opt/venv/sbom.json"))
listed = {(re.sub("[-_.]+", "-", each["name"]).lower(), each["version"]) for each in document["components"]}
there = {(re.sub("[-_.]+", "-", each.name).lower(), each.version) for each in metadata.distributions()}
assert document["bomFormat"] == "CycloneDX" and listed == there, listed ^ there
print(sorted(listed))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the volume that the runs and the tasks of their jobs share."""
    return tmp_path_factory.mktemp("volume")


@dataclass(frozen=True)
class Prepared:
    """Runs up to Transform, prepared to train on the cluster."""

    runs: Runs
    cluster: Cluster
    volume: Path
    earlier: set[Path] = field(default_factory=set)

    def arguments(self, kind: str, strategy: str, steps: int = STEPS) -> tuple[str, ...]:
        """Return the arguments of a run whose Trainer submits a job; another number of steps avoids the cache."""
        fields = {"where": _where(kind, self.volume), "strategy": strategy, "steps": steps, "evaluator": "true"}
        fields["checkpoint"] = "{every_steps: 20}"
        sets = (word for name, value in fields.items() for word in ("--set", f"training.{name}={value}"))
        return (*self.runs.arguments, *sets)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client of the cluster."""
        return {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}

    def run(self, *arguments: str) -> Ended:
        """Run the pipeline to its end."""
        return command(*arguments, environment=self.environment)

    def start(self, *arguments: str) -> ForkedCommand:
        """Start a run; from now on, logs of earlier runs are ignored."""
        self.earlier.update(self._folders())
        return ForkedCommand(main, arguments, ROOT, self.environment)

    def log(self, task: str) -> str:
        """Return the log so far of a task of the running job."""
        logs = [folder / "logs" / f"{task}.log" for folder in self._folders() - self.earlier]
        return "".join(log.read_text() for log in logs if log.exists())

    def files(self, pattern: str) -> list[Path]:
        """Return files of the unfinished training that the newest run has left."""
        return [path for folder in self._folders() - self.earlier for path in folder.glob(pattern)]

    def _folders(self) -> set[Path]:
        return set(self.runs.output.glob("artifacts/Trainer/.system/stateful_working_dir/*"))

    def await_no_job(self) -> None:
        """Wait until the last job is deleted, and its tasks have ended; they get a grace period."""
        deadline = time.monotonic() + SECONDS
        while self.jobs() or self.cluster.get("pods", f"--selector={_SET}"):
            assert time.monotonic() < deadline
            time.sleep(0.5)

    def jobs(self) -> list[str]:
        """Return the names of all jobs; the JobSet of a TrainJob has the same name."""
        names = {
            resource["metadata"]["name"] for kind in _JOBS for resource in self.cluster.get(kind, "--all-namespaces")
        }
        return sorted(names)


def _where(kind: str, volume: Path) -> str:
    """Return `training.where` for tasks that share a folder of this machine with the run."""
    return f"{{kind: {kind}, image: {IMAGE}, volumes: {{{volume}: {{hostPath: {{path: {volume}}}}}}}}}"


@pytest.fixture(scope="module")
def prepared(cluster: Cluster, folder: Path) -> Prepared:
    config = people.project(folder)
    runs = first_run(folder, "people", "--config", str(config), only=("--to", "Transform"))
    assert runs.first.exit_code == 0, runs.first.err
    return Prepared(runs, cluster, folder)


def await_that(run: ForkedCommand, is_so: Callable[[], object]) -> None:
    """Wait for a condition while a run is in progress."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert not run.has_ended(0.2), run.wait(0)
        assert time.monotonic() < deadline


def await_step(prepared: Prepared, run: ForkedCommand, task: str, step: int) -> None:
    """Wait until a task has logged that many steps."""
    await_that(run, lambda: [logged_step for logged_step in _steps(prepared.log(task)) if logged_step >= step])


def _steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"step (\d+): loss", log)]


def test_run_that_trains_as_a_jobset_ends_with_a_pushed_model_and_its_lineage(prepared: Prepared) -> None:
    ended = prepared.run(*prepared.arguments("jobset", PARAMETER_SERVER))
    assert ended.exit_code == 0, ended.err
    assert {"Trainer", "Evaluator", "Pusher"} <= ended.nodes("done")
    [version] = prepared.runs.pushed
    lineage = prepared.run(
        "store", "lineage", *prepared.runs.config, "--output", str(prepared.runs.output.parent), version
    )
    assert lineage.exit_code == 0, lineage.err
    assert all(node in lineage.out for node in ("ExampleGen", "Transform", "Trainer", "Pusher"))
    assert {log.stem for log in (prepared.runs.model_run / "logs").iterdir()} == {
        *("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0")
    }
    prepared.await_no_job()


@pytest.mark.parametrize(
    ("kind", "strategy", "lead", "killed"),
    [
        ("tfjob", PARAMETER_SERVER, "chief-0", "ps"),
        ("tfjob", MULTI_WORKER, "worker-0", "worker"),
        ("jobset", PARAMETER_SERVER, "chief-0", "worker"),
        ("jobset", MULTI_WORKER, "worker-0", "worker"),
        ("trainjob", PARAMETER_SERVER, "chief-0", "worker"),
        ("trainjob", MULTI_WORKER, "worker-0", "worker"),
    ],
)
def test_job_outlives_a_killed_task(prepared: Prepared, kind: str, strategy: str, lead: str, killed: str) -> None:
    steps = 600 + len(kind) + len(strategy)
    run = prepared.start(*prepared.arguments(kind, strategy, steps), "--to", "Trainer")
    await_step(prepared, run, lead, 40)
    kill_task(killed, 0)
    code, _, err = run.wait(SECONDS)
    assert code == 0, err
    logged_steps, restarts = _read_newest_training(prepared, lead)
    assert logged_steps[-1] == steps
    # A TFJob restarts a single task, and does not count restarts.
    assert (restarts > 0) == (kind != "tfjob")
    prepared.await_no_job()
    assert prepared.cluster.get("trainingruntimes.trainer.kubeflow.org", "--all-namespaces") == []


def _read_newest_training(prepared: Prepared, lead: str) -> tuple[list[int], int]:
    """Return the steps that the lead of the newest training has logged, and how often its job was restarted."""
    [model_run] = Store(prepared.runs.output / "metadata.db").newest_artifacts("ModelRun", newest=1)
    log = Path(model_run.uri) / "logs" / f"{lead}.log"
    return _steps(log.read_text()), int(model_run.properties["restarts"])


def test_run_that_was_killed_finds_its_job_again(prepared: Prepared) -> None:
    arguments = prepared.arguments("jobset", PARAMETER_SERVER, 3000)
    # Start a separate process, so that its nodes end with it.
    with start(*arguments, "--to", "Trainer", environment=prepared.environment) as run:
        while not _steps(prepared.log("chief-0")):
            assert run.poll() is None, run.communicate()
            time.sleep(0.2)
        run.kill()
    [job] = prepared.jobs()
    [jobset] = prepared.cluster.get("jobsets")
    resumed = prepared.start(*arguments, "--to", "Trainer", "--resume", "latest")
    await_that(resumed, lambda: _count_logged(prepared, f"job {job} of an earlier attempt is found again"))
    assert prepared.cluster.get("jobset", job)["metadata"]["uid"] == jobset["metadata"]["uid"]
    code, _, err = resumed.wait(SECONDS)
    assert code == 0, err
    prepared.await_no_job()


def _count_logged(prepared: Prepared, text: str) -> int:
    """Return how often the Trainers of all runs have logged a text."""
    return sum(log.read_text().count(text) for log in prepared.runs.output.glob("logs/**/Trainer*.log"))


@pytest.mark.parametrize("kind", ["jobset", "trainjob", "tfjob"])
def test_stopped_run_deletes_its_job_after_a_checkpoint(prepared: Prepared, kind: str) -> None:
    """The parameter servers, which receive SIGTERM at the same moment, do not end before the chief."""
    arguments = prepared.arguments(kind, PARAMETER_SERVER, 100_000)
    run = prepared.start(*arguments, "--set", "training.checkpoint={every_steps: 100000}", "--to", "Trainer")
    await_step(prepared, run, "chief-0", 40)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(SECONDS)[0] == 143
    prepared.await_no_job()
    [checkpoint] = prepared.files("**/step-*.index")
    assert int(checkpoint.stem.removeprefix("step-")) >= 40


@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
def test_trials_of_a_tuner_run_as_jobs(prepared: Prepared, kind: str) -> None:
    rates = "{choice: [0.000001, 0.01, 0.03]}"
    tune = f"{{learning_rate: {rates}, trials: 3, steps: 40, halving: {{min_steps: 20, factor: 2}}, parallel: 2}}"
    ended = prepared.run(*prepared.arguments(kind, "{kind: none}"), "--set", f"tune={tune}", "--to", "Tuner")
    assert ended.exit_code == 0, ended.err
    trials = ended.result["results"]["Tuner"]["trials"]
    assert len(trials) == 3
    assert [trial["state"] for trial in trials if trial["steps"] == 40] == ["completed"]
    assert trials[0]["values"]["learning_rate"] > 0.001
    assert all(trial["state"] != "failed" and [20, trial["rungs"][0][1]] in trial["rungs"] for trial in trials)
    prepared.await_no_job()


def test_workers_of_a_jobset_join_and_leave(prepared: Prepared) -> None:
    """Scale the Job of the workers during the training."""
    strategy = "{kind: parameter_server, workers: 1, max_workers: 2, ps: 1}"
    run = prepared.start(*prepared.arguments("jobset", strategy, 100_000), "--to", "Trainer")
    await_step(prepared, run, "chief-0", 40)
    [job] = prepared.jobs()
    for parallelism, change in ((2, "joined: worker-"), (1, "left: worker-")):
        patch = f'{{"spec": {{"parallelism": {parallelism}}}}}'
        prepared.cluster.kubectl("patch", "job", f"{job}-worker-0", "--patch", patch)
        await_that(run, lambda change=change: change in prepared.log("chief-0"))
        step = _steps(prepared.log("chief-0"))[-1]
        await_step(prepared, run, "chief-0", step + 100)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(SECONDS)[0] == 143
    prepared.await_no_job()


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_error_of_a_task_is_the_error_of_the_run(prepared: Prepared, kind: str) -> None:
    arguments = prepared.arguments(kind, MULTI_WORKER, 777)
    ended = prepared.run(*arguments, "--to", "Trainer", "--set", "training.learning_rate=1.0e+38")
    assert ended.exit_code == 2
    assert "expected a finite loss, received nan" in ended.out
    # A failed job is kept, so that users can find the cause.
    [job] = prepared.jobs()
    prepared.cluster.kubectl("delete", kind, job)
    if kind == "trainjob":
        prepared.cluster.kubectl("delete", "trainingruntime", job)


def test_image_that_is_not_there_is_named(prepared: Prepared) -> None:
    arguments = prepared.arguments("jobset", MULTI_WORKER, 778)
    ended = prepared.run(
        *(word.replace(IMAGE, "localhost/pipeline:none") for word in arguments),
        *("--to", "Trainer", "--set", "training.where.start_minutes=0.1"),
    )
    assert ended.exit_code == 1
    assert "expected a task to start within 0.1 minutes" in ended.out
    assert "localhost/pipeline:none" in ended.out
    prepared.await_no_job()


@pytest.fixture(scope="module")
def queue(cluster: Cluster) -> Queue:
    cluster.start_controllers("kueue")
    return Queue(cluster)


@pytest.mark.parametrize(
    ("kind", "strategy", "lead", "pods"),
    [
        ("trainjob", PARAMETER_SERVER, "chief-0", 5),
        ("jobset", MULTI_WORKER, "worker-0", 3),
        ("tfjob", MULTI_WORKER, "worker-0", 3),
    ],
)
def test_queued_job_waits_for_its_quota_and_continues_after_an_eviction(
    prepared: Prepared, queue: Queue, kind: str, strategy: str, lead: str, pods: int
) -> None:
    queue.admit(pods - 1)
    steps = 900 + len(kind)
    arguments = prepared.arguments(kind, strategy, steps)
    run = prepared.start(*arguments, "--set", f"training.where.queue={queue.name}", "--to", "Trainer")
    await_that(run, prepared.jobs)
    [job] = prepared.jobs()
    await_that(run, lambda: f"maximum capacity ({pods - 1})" in queue.describe(job))
    await_that(run, lambda: _count_logged(prepared, f"job {job} is queued") == 1)
    assert not [pod for pod in prepared.cluster.get("pods") if pod["metadata"]["name"].startswith(job)]
    queue.admit(pods)
    await_step(prepared, run, lead, 100)
    queue.evict(pods)
    await_that(run, lambda: _count_logged(prepared, f"job {job} is queued") == 2)
    queue.admit(pods)
    code, _, err = run.wait(SECONDS)
    assert code == 0, err
    logged_steps, _ = _read_newest_training(prepared, lead)
    assert logged_steps[-1] == steps
    # It has continued from a checkpoint: from the beginning, it would log the first step a second time.
    assert logged_steps.count(logged_steps[0]) == 1
    prepared.await_no_job()


@dataclass(frozen=True)
class Scheduled:
    """deploy/runs on the cluster, with this test's config, image and volume."""

    cluster: Cluster
    volume: Path

    def run(self, name: str, *arguments: str) -> str:
        """Create a Job from the CronJob, wait until it has succeeded, and return its log."""
        self._apply(arguments)
        self.cluster.kubectl("create", "job", name, "--from=cronjob/taxi-run")
        try:
            self.cluster.wait_for("condition=Complete", f"job/{name}", seconds=SECONDS)
        except AssertionError as error:
            raise AssertionError(self.cluster.kubectl("logs", f"job/{name}")) from error
        return self.cluster.kubectl("logs", f"job/{name}")

    def _apply(self, arguments: tuple[str, ...]) -> None:
        documents = list(yaml.safe_load_all(self.cluster.kubectl("kustomize", ROOT / "deploy" / "runs")))
        [pod] = [
            _pod(document["spec"]["jobTemplate"]["spec"]) for document in documents if document["kind"] == "CronJob"
        ]
        [container] = pod["containers"]
        container |= {"image": IMAGE, "resources": {}}
        container["command"] = [*container["command"][:3], "--config", str(self.volume / "taxi.yaml"), *arguments]
        _mount(pod, "data", self.volume, self.volume)
        self.cluster.apply(*documents)


def _pod(template: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of the pod in the specification of a Job or a Deployment."""
    pod: dict[str, Any] = template["template"]["spec"]
    return pod


def _mount(pod: dict[str, Any], name: str, source: Path, path: Path) -> None:
    """Replace a claim by a folder of this machine."""
    [volume] = [item for item in pod["volumes"] if item["name"] == name]
    del volume["persistentVolumeClaim"]
    volume["hostPath"] = {"path": str(source)}
    [mount] = [item for item in pod["containers"][0]["volumeMounts"] if item["name"] == name]
    mount["mountPath"] = str(path)


@pytest.fixture(scope="module")
def cron_job(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Scheduled:
    volume = tmp_path_factory.mktemp("scheduled")
    config = people.project(volume, "taxi", push={"directory": str(volume / "models" / "taxi"), "rollout": {}})
    text = config.read_text()
    config.write_text(f"{text}runtime: {{output: {volume / 'out'}}}\n")
    for path in (volume, *volume.rglob("*")):
        os.chown(path, 1000, 1000)
    return Scheduled(cluster, volume)


def test_scheduled_run_submits_its_training_and_pushes(cron_job: Scheduled) -> None:
    """Run as the image's user, with only the permissions of deploy/runs."""
    where = _where("jobset", cron_job.volume)
    log = cron_job.run("first", "--set", f"training.where={where}", "--set", f"training.strategy={MULTI_WORKER}")
    assert len(list((cron_job.volume / "models" / "taxi").glob("[0-9]*"))) == 1, log
    store = Store(cron_job.volume / "out" / "taxi" / "metadata.db")
    [run] = store.runs("taxi")
    assert all(execution.succeeded for execution in store.executions(run.name))


def test_image_lists_what_it_has_installed(cluster: Cluster) -> None:
    """As the image's user, list every package of its Python with its version."""
    words = ("--image", IMAGE, "--image-pull-policy=Never", "--restart=Never", "--command", "--")
    cluster.kubectl("run", "packages", *words, "python", "-c", _COMPARE)
    cluster.wait_for("jsonpath={.status.phase}=Succeeded", "pod/packages")
    assert "tensorflow" in cluster.kubectl("logs", "pod/packages")


def test_canary_is_served_by_its_own_pods_and_promoted(cron_job: Scheduled) -> None:
    """deploy/kubernetes with this project's own server, because there is no registry with TensorFlow Serving here."""
    # Its Trainer has the rights of deploy/runs, too, here for a TrainJob.
    cron_job.run("second", "--set", "training.seed=2", "--set", f"training.where={_where('trainjob', cron_job.volume)}")
    models = cron_job.volume / "models"
    first, second = sorted(int(each.name) for each in (models / "taxi").glob("[0-9]*"))
    config = ("--config", str(cron_job.volume / "taxi.yaml"))
    assert command("models", "promote", *config, str(first)).exit_code == 0
    assert command("models", "canary", *config, str(second), "--percent", "10").exit_code == 0
    documents = list(yaml.safe_load_all(cron_job.cluster.kubectl("kustomize", ROOT / "deploy" / "kubernetes")))
    deployments = [each for each in documents if each["kind"] == "Deployment"]
    for each in deployments:
        pod = _pod(each["spec"])
        [container] = pod["containers"]
        known = ("--port", "--rest_api_port", "--model_config_file=")
        arguments = [argument for argument in container["args"] if argument.startswith(known)]
        container |= {"image": IMAGE, "command": ["python", "-m", "components.serving.server", "--host=0.0.0.0"]}
        container |= {"args": [argument.replace("/models/", f"{models}/") for argument in arguments], "resources": {}}
        _mount(pod, "models", models, models)
        # Unlike TensorFlow Serving, this server needs a folder for temporary files.
        pod["volumes"].append({"name": "temporary", "emptyDir": {}})
        container["volumeMounts"].append({"name": "temporary", "mountPath": "/tmp"})  # noqa: S108
    plain = [each for each in documents if each["kind"] in ("ConfigMap", "Service", "PodDisruptionBudget")]
    cron_job.cluster.apply(*plain, *deployments)
    for each in deployments:
        cron_job.cluster.wait_for("condition=Available", f"deployment/{each['metadata']['name']}", seconds=SECONDS)
    assert _versions_by_track(cron_job.cluster) == {"stable": {first}, "canary": {second}}
    assert command("models", "promote", *config, str(second)).exit_code == 0
    deadline = time.monotonic() + SECONDS
    while _versions_by_track(cron_job.cluster)["stable"] != {second}:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _versions_by_track(cluster: Cluster) -> dict[str, set[int]]:
    """Return track → the loaded versions in its pods."""
    versions_by_track: dict[str, set[int]] = {"stable": set(), "canary": set()}
    for pod in cluster.get("pods", "--selector=app=taxi"):
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8501/v1/models/taxi", timeout=10) as answer:
            versions = json.load(answer)["model_version_status"]
        versions_by_track[pod["metadata"]["labels"]["track"]] |= {
            int(version["version"]) for version in versions if version["state"] == "AVAILABLE"
        }
    return versions_by_track


class PodCluster(kubeflow_pipelines.Cluster):
    """Runs each container of a compiled pipeline as a pod, in the network of the node, where the metadata server is."""

    kubernetes: Cluster
    volume: Path

    def execute(self, task: str, arguments: list[str], environment: dict[str, str]) -> None:
        volume = {"name": "pipeline", "hostPath": {"path": str(self.volume)}}
        container = {
            "name": "main",
            "image": IMAGE,
            "command": ["python", "runner.py", *arguments],
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "volumeMounts": [{"name": "pipeline", "mountPath": str(self.volume)}],
        }
        spec = {"restartPolicy": "Never", "hostNetwork": True, "containers": [container], "volumes": [volume]}
        # Run as the user of this process, which creates the folders for the outputs.
        spec["securityContext"] = {"runAsUser": 0}
        name = f"task-{len(self.ran)}"
        self.kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        try:
            self.kubernetes.wait_for("jsonpath={.status.phase}=Succeeded", f"pod/{name}", seconds=SECONDS)
        except AssertionError as error:
            raise AssertionError(task, self.kubernetes.kubectl("logs", name)[-4000:]) from error


@kubeflow_pipelines.needs_kfp
def test_containers_of_the_compiled_pipeline_run_as_pods(cluster: Cluster, tmp_path: Path) -> None:
    """Run the pods in the pipeline's order, because Kubeflow's controller is not available here."""
    config, volume = people.project(tmp_path), tmp_path
    with SERVERS["postgresql"]() as server:
        store = server.location
        fields = {"backend": store.backend, "host": store.host, "port": store.port, "database": store.name}
        shared = ["--config", str(config), "--set", f"metadata={json.dumps({**fields, 'user': store.user})}"]
        keys = "{METADATA_PASSWORD: {secret: metadata, key: password}}"
        section = f"{{image: {IMAGE}, claim: pipeline, mount: {volume}, secrets: {keys}}}"
        file = tmp_path / "pipeline.yaml"
        written = command("--kubeflow", *shared, "--set", f"kubeflow={section}", "--output", str(file))
        assert written.exit_code == 0, written.err
        pipeline = kubeflow_pipelines.read(file)
        pods = PodCluster(volume / "scratch", {("metadata", "password"): PASSWORD})
        pods.kubernetes, pods.volume = cluster, volume
        pods.run(pipeline)
        assert sorted(pods.ran) == sorted(pipeline.spec["root"]["dag"]["tasks"])
    [version] = (volume / "out" / "people" / "pushed").glob("[0-9]*")
    assert (version / "saved_model.pb").is_file()
