"""Jobs of Kubernetes, submitted, watched and deleted through its API; the logs of the tasks are followed."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes
import urllib3
from kubernetes.client.exceptions import ApiException

from components.base.errors import InputError, MachineError
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import JobStatus, State
from components.trainer.remote.manifests import CONTAINER

_KINDS = {
    "tfjob": ("kubeflow.org", "v1", "tfjobs"),
    "jobset": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
}
"""Kind → group, version and plural of its objects."""
_PARTS = {
    "TrainingRuntime": ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "JobSet": _KINDS["jobset"],
}
"""Kind of an object that belongs to a job → its group, version and plural."""
_JOBSET_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "batch.kubernetes.io/job-completion-index",
)
_LABELS = {
    "tfjob": (
        "training.kubeflow.org/job-name",
        "training.kubeflow.org/replica-type",
        "training.kubeflow.org/replica-index",
    ),
    "jobset": _JOBSET_LABELS,
    "trainjob": _JOBSET_LABELS,
}
"""Kind → the labels of a pod with the job's name, the task's role and its index."""
_CONDITIONS = {
    **dict.fromkeys(("Succeeded", "Completed", "Complete"), State.SUCCEEDED),
    "Failed": State.FAILED,
    "Suspended": State.QUEUED,
}
"""Condition of a TFJob, a JobSet or a TrainJob → its state."""
_RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
"""Label of a pod with the number of restarts of its JobSet. A TrainJob does not have this number in its status."""
_FINAL_REASONS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
"""Reasons for which a waiting container will never start."""
_SECONDS = 30.0
"""Time limit of a request."""
_RETRY_SECONDS = 5.0
_CACHE_SECONDS = 10.0
"""How long the caches of webhooks may lack an object that was created."""
_CACHE_RETRY_SECONDS = 0.2
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesJobs:
    """The jobs of one kind in one namespace.

    Args:
      where: Kind, context and namespace.
      logs: Folder for the tasks' logs, `<task>.log`.
      lead: The task whose log also goes to this process's log, such as chief-0.

    Raises:
      InputError: If the configuration of a client, or its context, does not exist.
    """

    def __init__(self, where: WhereConfig, logs: Path, lead: str) -> None:
        client, namespace = _create_client(where.context)
        self._objects = kubernetes.client.CustomObjectsApi(client)
        self._core = kubernetes.client.CoreV1Api(client)
        self._namespace = where.namespace or namespace
        self._resource = _KINDS[where.kind]
        self._companions = [
            *(["TrainingRuntime"] if where.kind == "trainjob" else []),
            *(["NetworkPolicy"] if where.isolated else []),
        ]
        self._kind = where.kind
        self._logs = logs
        self._lead = lead
        self._followed: dict[str, threading.Thread] = {}

    def submit(self, manifest: dict[str, Any]) -> None:
        """Create a job, or an object that belongs to it, unless it exists.

        Raises:
          InputError: If Kubernetes refuses the request.
          MachineError: If Kubernetes does not answer.
        """
        resource = _PARTS.get(manifest["kind"], self._resource)
        deadline = time.monotonic() + _CACHE_SECONDS
        while True:
            try:
                self._request(self._objects.create_namespaced_custom_object, resource, body=manifest)
                return
            except InputError as error:
                if time.monotonic() > deadline or not _lacks_runtime(manifest, error):
                    raise
            time.sleep(_CACHE_RETRY_SECONDS)

    def status(self, name: str) -> JobStatus | None:
        """Return the status of a job, and follow the logs of its tasks; None if the job does not exist.

        Raises:
          InputError: If Kubernetes refuses the request.
          MachineError: If Kubernetes does not answer.
        """
        job = self._request(self._objects.get_namespaced_custom_object, self._resource, name=name)
        if job is None:
            return self._describe_remains(name)
        status = job.get("status") or {}
        state, message = State.RUNNING, ""
        for condition in status.get("conditions") or ():
            if condition["type"] in _CONDITIONS and condition["status"] == "True":
                state, message = _CONDITIONS[condition["type"]], condition.get("message", "")
        _, by_role, by_index = _LABELS[self._kind]
        tasks, failed, restarts = {}, [], int(status.get("restarts", 0))
        for pod in self._list_pods(name):
            labels = pod.metadata.labels
            task = f"{labels[by_role].lower()}-{labels[by_index]}"
            restarts = max(restarts, int(labels.get(_RESTART_LABEL, 0)))
            tasks[task], final = _describe_phase(pod)
            if tasks[task] in ("Running", "Succeeded", "Failed"):
                self._follow(task, pod)
            if tasks[task] == "Failed":
                failed.append(task)
            if final:
                state, message = State.FAILED, f"{task} cannot start: {final}"
        if job["metadata"].get("deletionTimestamp"):
            state, message = State.FAILED, "it is being deleted"
        if state is State.RUNNING and all(phase.startswith("Pending") for phase in tasks.values()):
            state = State.WAITING
        return JobStatus(state, message, tasks, tuple(failed), restarts)

    def _list_pods(self, name: str) -> Sequence[Any]:
        by_name, *_ = _LABELS[self._kind]
        pods = self._call(
            "pods",
            self._core.list_namespaced_pod,
            self._namespace,
            label_selector=f"{by_name}={name}",
            _request_timeout=_SECONDS,
        )
        return pods.items if pods else ()

    def _describe_remains(self, name: str) -> JobStatus | None:
        """Return the status of a deleted job; None once its tasks have ended and the objects of the job are deleted."""
        for kind in (*self._companions, *(["JobSet"] if self._kind == "trainjob" else [])):
            if self._request(self._objects.get_namespaced_custom_object, _PARTS[kind], name=name):
                return JobStatus(State.FAILED, f"it is deleted, but its {kind} is not")
        if self._list_pods(name):
            return JobStatus(State.FAILED, "it is deleted, but its tasks have not ended")
        return None

    def delete(self, name: str) -> None:
        """Delete a job with its tasks, which get SIGTERM, and the objects that belong to it, if they exist.

        Raises:
          InputError: If Kubernetes refuses the request.
          MachineError: If Kubernetes does not answer.
        """
        # Foreground deletion adds a finalizer. The webhook of Kubeflow Trainer refuses every change of a TrainJob whose
        # runtime is deleted, including the removal of that finalizer. In the background, the TrainJob is deleted before
        # its runtime.
        policy = "Background" if self._kind == "trainjob" else "Foreground"
        for resource in (self._resource, *(_PARTS[kind] for kind in self._companions)):
            self._request(self._objects.delete_namespaced_custom_object, resource, name=name, propagation_policy=policy)

    def join_logs(self, seconds: float) -> None:
        """Wait until the logs of ended tasks are complete, at most this long for each log."""
        for thread in self._followed.values():
            thread.join(seconds)

    def _request(self, call: Callable[..., Any], resource: tuple[str, str, str], **arguments: Any) -> Any:
        group, version, plural = resource
        objects = f"{plural}.{group}"
        return self._call(
            objects, call, group, version, self._namespace, plural, _request_timeout=_SECONDS, **arguments
        )

    def _call(self, objects: str, call: Callable[..., Any], *positional: Any, **arguments: Any) -> Any:
        """Return the answer; None if the object to create exists, or the object to read or delete does not exist."""
        try:
            return call(*positional, **arguments)
        except ApiException as error:
            if error.status == (409 if "create" in call.__name__ else 404):
                return None
            if error.status and 400 <= error.status < 500 and error.status != 429:
                action = f"{call.__name__.partition('_')[0]} {objects}"
                raise InputError(
                    f"training.where: Kubernetes refuses to {action} in namespace {self._namespace}: "
                    f"{_get_message(error)}",
                    "grant the run's user these rights, and install the job's controller in the cluster",
                ) from error
            raise _create_no_answer_error(error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _create_no_answer_error(error) from error

    def _follow(self, task: str, pod: Any) -> None:
        if pod.metadata.uid not in self._followed:
            thread = threading.Thread(target=self._copy_log, args=(task, pod.metadata.name), daemon=True)
            self._followed[pod.metadata.uid] = thread
            thread.start()

    def _copy_log(self, task: str, pod: str) -> None:
        """Append a pod's log to the task's file until the container has ended; reopen a lost connection."""
        written = b""
        with (self._logs / f"{task}.log").open("ab", buffering=0) as file:
            while True:
                copied_before = written
                try:
                    answer = self._core.read_namespaced_pod_log(
                        pod, self._namespace, container=CONTAINER, follow=True, timestamps=True, _preload_content=False
                    )
                    for line in _read_lines(answer):
                        # Timestamps have a fixed width, so their texts sort by time.
                        written_at, _, text = line.partition(b" ")
                        if written_at <= copied_before:
                            continue
                        written = written_at
                        file.write(text)
                        if task == self._lead:
                            logging.info("%s: %s", task, text.decode(errors="replace").rstrip())
                    return
                except ApiException as error:
                    logging.info("%s: its log has ended: %s", task, _get_message(error))
                    return
                except (urllib3.exceptions.HTTPError, OSError) as error:
                    logging.info("%s: the connection to its log was lost: %s", task, error)
                    time.sleep(_RETRY_SECONDS)


def _create_client(context: str | None) -> tuple[kubernetes.client.ApiClient, str]:
    """Return a client, and the namespace of its configuration."""
    # The library reads the variable when it is imported, which may have happened in the parent before the fork.
    file = os.environ.get("KUBECONFIG", "~/.kube/config")
    try:
        client = kubernetes.config.new_client_from_config(file, context)
        contexts, current = kubernetes.config.list_kube_config_contexts(file)
        chosen = next((entry for entry in contexts if entry["name"] == context), current)
        return client, chosen["context"].get("namespace", "default")
    except kubernetes.config.ConfigException as error:
        try:
            if context is not None:
                raise error
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        except kubernetes.config.ConfigException:
            raise InputError(
                f"training.where: expected the configuration of a Kubernetes client, received: {error}",
                "set KUBECONFIG, name a context of it in training.where.context, or run in a pod of the cluster",
            ) from error
        return kubernetes.client.ApiClient(configuration), _POD_NAMESPACE.read_text()


def _lacks_runtime(manifest: dict[str, Any], error: InputError) -> bool:
    """Return whether a webhook refuses a TrainJob because it does not know the job's runtime.

    The webhooks of Kubeflow Trainer and Kueue read runtimes from caches, which lag behind the API server. A TrainJob is
    created right after its runtime.
    """
    refusal = str(error)
    return manifest["kind"] == "TrainJob" and "denied the request" in refusal and "not found" in refusal


def _describe_phase(pod: Any) -> tuple[str, str]:
    """Return the phase of a pod, with the reason if it waits; and why it will never start, or an empty string."""
    for container in pod.status.container_statuses or ():
        waiting = container.state.waiting
        if waiting and waiting.reason != "ContainerCreating":
            text = f"{waiting.reason}: {waiting.message or ''}".rstrip(": ")
            return f"Pending, {text}", text if waiting.reason in _FINAL_REASONS else ""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"Pending, {condition.reason}: {condition.message}", ""
    return pod.status.phase, ""


def _read_lines(answer: Any) -> Iterator[bytes]:
    """Yield the lines of a response as they arrive."""
    partial = b""
    with contextlib.closing(answer):
        for chunk in answer.stream(amt=None, decode_content=False):
            *lines, partial = (partial + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines if line)
    if partial:
        yield partial + b"\n"


def _get_message(error: ApiException) -> str:
    """Return the text of a refusal: the message of Kubernetes' Status object, or the reason of the HTTP response."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(error.body)["message"])
    return str(error.reason)


def _create_no_answer_error(error: Exception) -> MachineError:
    return MachineError(
        f"training.where: expected an answer of Kubernetes, received {type(error).__name__}: {error}",
        "check that the cluster can be reached; --resume the run: it finds the job again",
    )
