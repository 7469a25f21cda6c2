"""Tests of jobs on Kubernetes, with the official client and a fake API.

tests/e2e/test_kubernetes.py uses a real API server.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError, MachineError
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import State
from components.trainer.remote.kubernetes_jobs import KubernetesJobs
from tests.support.fakes.fake_service import JsonHandler, serving

NAME = "train-taxi-1"
JOBS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/mine/jobsets"
PODS = "/api/v1/namespaces/mine/pods"
MANIFEST = {"kind": "JobSet", "metadata": {"name": NAME}}
WHERE = WhereConfig(kind="jobset", image="registry.example/taxi:1")
TRAIN_JOB = WhereConfig(kind="trainjob", image="registry.example/taxi:1")


@dataclass
class Api:
    """State of a fake Kubernetes API.

    Attributes:
        answers: Response bodies by path.
        logs: Log contents by name of the pod.
        refuses: Status code with which every request is refused. If None, requests are answered.
        denials: Messages with which a webhook denies the next requests that create an object.
        sent: Method and path of every request, in the order of arrival.
        policies: Propagation policy of every deletion.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    refuses: int | None = None
    denials: list[str] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)

    def job(self, pods: list[dict[str, Any]], conditions: list[dict[str, str]], **metadata: str) -> None:
        """Set the answers for the job and its pods."""
        status = {"conditions": conditions, "restarts": 3}
        self.answers[f"{JOBS}/{NAME}"] = {"metadata": {"name": NAME, **metadata}, "status": status}
        self.answers[PODS] = {"items": pods}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api()
    with serving(_handler(api)) as port:
        _write_kubeconfig(tmp_path, port, monkeypatch)
        yield api


def _write_kubeconfig(folder: Path, port: int, patch: pytest.MonkeyPatch) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "current-context": "mine",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    patch.setenv("KUBECONFIG", str(folder / "kubeconfig"))


def _handler(api: Api) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def _respond(self) -> None:
            _, _, path, query, _ = urllib.parse.urlsplit(self.path)
            self.body()
            api.sent.append((self.command, path))
            api.policies += urllib.parse.parse_qs(query).get("propagationPolicy", [])
            if api.refuses:
                self.respond({"message": 'namespaces "mine" is forbidden'}, api.refuses)
            elif self.command == "POST" and api.denials:
                denial = f'admission webhook "v.example" denied the request: {api.denials.pop(0)}'
                self.respond({"message": denial}, 403)
            elif path.endswith("/log"):
                self.answer(200, api.logs[path.split("/")[-2]], {"Content-Type": "text/plain"})
            elif self.command == "GET" and path not in api.answers:
                self.respond({"message": "not found"}, 404)
            else:
                self.respond(api.answers.get(path, {}))

        do_GET = do_POST = do_DELETE = _respond

    return Handler


def pod(task: str, phase: str, restarts: int = 0, **status: Any) -> dict[str, Any]:
    role, _, index = task.partition("-")
    labels = {
        "jobset.sigs.k8s.io/restart-attempt": str(restarts),
        "jobset.sigs.k8s.io/jobset-name": NAME,
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "batch.kubernetes.io/job-completion-index": index,
    }
    return {"metadata": {"name": f"pod-{task}", "uid": task, "labels": labels}, "status": {"phase": phase, **status}}


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "tensorflow", "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    return {"containerStatuses": [container]}


@pytest.fixture
def jobs(api: Api, tmp_path: Path) -> KubernetesJobs:
    return KubernetesJobs(WHERE, tmp_path, "chief-0")


def test_job_is_created_and_deleted_in_the_namespace_of_the_context(api: Api, jobs: KubernetesJobs) -> None:
    jobs.submit(MANIFEST)
    jobs.delete(NAME)
    assert api.sent == [("POST", JOBS), ("DELETE", f"{JOBS}/{NAME}")]
    assert api.policies == ["Foreground"]


def test_objects_of_a_job_are_created_and_deleted_with_it(api: Api, tmp_path: Path) -> None:
    trainer, networking = (
        f"/apis/{group}/namespaces/mine" for group in ("trainer.kubeflow.org/v1alpha1", "networking.k8s.io/v1")
    )
    where = WhereConfig(kind="trainjob", image="registry.example/taxi:1", isolated=True)
    jobs = KubernetesJobs(where, tmp_path, "chief-0")
    for kind in ("TrainingRuntime", "NetworkPolicy", "TrainJob"):
        jobs.submit({"kind": kind, "metadata": {"name": NAME}})
    created = [f"{trainer}/trainingruntimes", f"{networking}/networkpolicies", f"{trainer}/trainjobs"]
    assert api.sent == [("POST", path) for path in created]
    jobs.delete(NAME)
    # Kubeflow Trainer refuses to change a TrainJob without its runtime, so no finalizer may remain when it is deleted.
    assert api.sent[3] == ("DELETE", f"{created[-1]}/{NAME}")
    assert sorted(api.sent[3:]) == sorted(("DELETE", f"{path}/{NAME}") for path in created)
    assert api.policies == ["Background"] * 3
    # A new job would lose its runtime, whose deletion is in progress.
    api.answers[f"{trainer}/trainingruntimes/{NAME}"] = {"metadata": {"name": NAME}}
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.message) == (State.FAILED, "it is deleted, but its TrainingRuntime is not")
    del api.answers[f"{trainer}/trainingruntimes/{NAME}"]
    assert jobs.status(NAME) is None


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        (f"{JOBS}/{NAME}", {"metadata": {"name": NAME}}, "it is deleted, but its JobSet is not"),
        (PODS, {"items": [pod("chief-0", "Running")]}, "it is deleted, but its tasks have not ended"),
    ],
)
def test_trainjob_is_deleted_when_its_tasks_are(
    api: Api, tmp_path: Path, path: str, answer: dict[str, Any], message: str
) -> None:
    """A new job would write to the folder of the checkpoints together with tasks that end slowly."""
    jobs = KubernetesJobs(TRAIN_JOB, tmp_path, "chief-0")
    api.answers[path] = answer
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.message) == (State.FAILED, message)
    del api.answers[path]
    assert jobs.status(NAME) is None


TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/mine/trainjobs"


def test_trainjob_is_submitted_until_the_webhooks_know_its_runtime(api: Api, tmp_path: Path) -> None:
    """The texts are those of Kubeflow Trainer 2.3 and Kueue 0.17."""
    api.denials = [
        f'spec.runtimeRef: TrainingRuntime.trainer.kubeflow.org "{NAME}" not found: specified trainingRuntime must be '
        "created before the TrainJob is created",
        f"runtime '{NAME}' not found",
    ]
    KubernetesJobs(TRAIN_JOB, tmp_path, "chief-0").submit({"kind": "TrainJob", "metadata": {"name": NAME}})
    assert api.sent == [("POST", TRAIN_JOBS)] * 3


def test_denial_of_a_webhook_is_an_input_error(api: Api, jobs: KubernetesJobs, tmp_path: Path) -> None:
    api.denials = ["spec.replicatedJobs: no such queue", "volume not found"]
    with pytest.raises(InputError, match="no such queue"):
        KubernetesJobs(TRAIN_JOB, tmp_path, "chief-0").submit({"kind": "TrainJob", "metadata": {"name": NAME}})
    with pytest.raises(InputError, match="volume not found"):
        jobs.submit(MANIFEST)


def test_restarts_of_a_trainjob_are_those_of_its_jobset(api: Api, tmp_path: Path) -> None:
    api.answers[f"{TRAIN_JOBS}/{NAME}"] = {"metadata": {"name": NAME}, "status": {"conditions": []}}
    api.answers[PODS] = {"items": [pod("chief-0", "Pending", restarts=2), pod("worker-0", "Pending", restarts=1)]}
    status = KubernetesJobs(TRAIN_JOB, tmp_path, "chief-0").status(NAME)
    assert status is not None
    assert status.restarts == 2


def test_submit_succeeds_if_the_job_already_exists(api: Api, jobs: KubernetesJobs) -> None:
    # A conflict means that an earlier request created the job, although its answer was lost.
    api.refuses = 409
    jobs.submit(MANIFEST)


def test_status_of_an_unknown_job_is_none(jobs: KubernetesJobs) -> None:
    assert jobs.status(NAME) is None


@pytest.mark.parametrize(
    ("pods", "conditions", "state"),
    [
        ([], [], State.WAITING),
        ([pod("chief-0", "Pending")], [], State.WAITING),
        ([pod("chief-0", "Running"), pod("worker-0", "Pending")], [], State.RUNNING),
        ([], [{"type": "Completed", "status": "True"}], State.SUCCEEDED),
        ([], [{"type": "Failed", "status": "True", "message": "limit"}], State.FAILED),
        ([], [{"type": "Failed", "status": "False"}], State.WAITING),
        ([], [{"type": "Suspended", "status": "True"}], State.QUEUED),
        ([pod("chief-0", "Running")], [{"type": "Suspended", "status": "False"}], State.RUNNING),
    ],
)
def test_state_follows_from_conditions_and_pods(
    api: Api, jobs: KubernetesJobs, pods: list[dict[str, Any]], conditions: list[dict[str, str]], state: State
) -> None:
    api.logs = {"pod-chief-0": b""}
    api.job(pods, conditions)
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.restarts) == (state, 3)


def test_job_that_is_being_deleted_has_failed(api: Api, jobs: KubernetesJobs) -> None:
    api.job([], [], deletionTimestamp="2026-11-26T00:00:00Z")
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.message) == (State.FAILED, "it is being deleted")


def test_status_says_why_a_task_is_waiting(api: Api, jobs: KubernetesJobs) -> None:
    api.job([pod("worker-1", "Pending", **waiting("ImagePullBackOff", "no such image"))], [])
    status = jobs.status(NAME)
    assert status is not None
    assert status.tasks == {"worker-1": "Pending, ImagePullBackOff: no such image"}
    assert status.state is State.WAITING


def test_task_that_will_never_start_fails_the_job(api: Api, jobs: KubernetesJobs) -> None:
    api.job([pod("worker-1", "Pending", **waiting("InvalidImageName", "bad"))], [])
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.message) == (State.FAILED, "worker-1 cannot start: InvalidImageName: bad")


def test_every_task_gets_a_log_file_and_the_lead_is_also_logged(
    api: Api, jobs: KubernetesJobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api.logs = {
        "pod-chief-0": b"2026-11-26T00:00:00.000000001Z step 1\n2026-11-26T00:00:00.000000002Z step 2\n",
        "pod-worker-0": b"2026-11-26T00:00:00.000000001Z ready\n",
    }
    api.job([pod("chief-0", "Succeeded"), pod("worker-0", "Failed")], [])
    with caplog.at_level("INFO"):
        status = jobs.status(NAME)
        jobs.status(NAME)
        jobs.join_logs(30)
    assert status is not None
    assert status.failed == ("worker-0",)
    assert (tmp_path / "chief-0.log").read_text() == "step 1\nstep 2\n"
    assert (tmp_path / "worker-0.log").read_text() == "ready\n"
    assert [record.message for record in caplog.records if "step" in record.message] == [
        "chief-0: step 1",
        "chief-0: step 2",
    ]


@pytest.mark.parametrize(("status", "error"), [(403, InputError), (422, InputError), (500, MachineError)])
def test_refusal_is_an_input_error_and_a_server_failure_is_a_machine_error(
    api: Api, jobs: KubernetesJobs, status: int, error: type[Exception]
) -> None:
    api.refuses = status
    with pytest.raises(error):
        jobs.submit(MANIFEST)


def test_error_contains_the_message_of_kubernetes(api: Api, jobs: KubernetesJobs) -> None:
    api.refuses = 403
    with pytest.raises(
        InputError, match=r"refuses to create jobsets\.jobset\.x-k8s\.io in namespace mine: .*forbidden"
    ):
        jobs.submit(MANIFEST)


def test_missing_answer_is_a_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(serving(JsonHandler))
    _write_kubeconfig(tmp_path, port, monkeypatch)
    with pytest.raises(MachineError, match="expected an answer of Kubernetes"):
        KubernetesJobs(WHERE, tmp_path, "chief-0").status(NAME)


@pytest.mark.parametrize(("context", "file"), [(None, "none"), ("other", "kubeconfig")])
def test_missing_client_configuration_is_an_error(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str | None, file: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / file))
    with pytest.raises(InputError, match="expected the configuration of a Kubernetes client") as raised:
        KubernetesJobs(WHERE.model_copy(update={"context": context}), tmp_path, "chief-0")
    assert "KUBECONFIG" in raised.value.remedy
