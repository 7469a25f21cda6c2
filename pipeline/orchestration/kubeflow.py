"""Write a pipeline for Kubeflow Pipelines v2, and submit it. A container per node calls `node run`.

TFX's KubeflowV2DagRunner is not used, because its pipelines need features of Vertex AI that Kubeflow Pipelines lacks. A
resolver fails with "resolver not implemented yet" (backend/src/v2/compiler/argocompiler/argo.go in
kubeflow/pipelines), and the hook before a task, where ExampleGen determines its span and fingerprint, is never called.
With `node run`, TFX's launcher does both in the container, on the metadata store that the config names. A run has
therefore the same lineage, cache and record as with any other orchestrator.

The file has two documents: Kubeflow's pipeline_spec.proto, and kubernetes_executor_config.proto for settings that only
Kubernetes has (volume, secrets, deadline). The client that submits the file, kfp, is installed in a separate
environment, because its dependencies conflict with TFX's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from components.base.errors import InputError, MachineError
from components.base.files import is_remote, write_atomically
from pipeline.authoring.config import Config
from pipeline.authoring.config.orchestrators import BY_HAND, EVERY, KubeflowConfig, Resources, ScheduleConfig
from pipeline.core.kubeflow_artifacts import VERSION, list_artifacts
from pipeline.core.records import GraphNode

SPAN = "span"
"""Name of the run parameter that selects the span. Its values are those of `node run --span`."""
_RUN_ID = "{{$.pipeline_job_uuid}}"
"""Placeholder that Kubeflow replaces by the ID of the run."""
_EXECUTOR_INPUT = "{{$}}"
"""Placeholder that Kubeflow replaces by JSON that names the artifacts of the task."""
_DUE, _COMPILE, _RUN = "due", "compile", "run"
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Job:
    """The parameters of a spec.

    Args:
      pipeline: Name of the pipeline.
      graph: Nodes of the pipeline.
      config: Options of `runner.py` that run the same pipeline in the container.
      kubeflow: Settings of the containers.
      schedule: When the pipeline runs, and how failures are handled. If None, it runs only when it is started by hand.
      classifies: Whether the Evaluator computes a confusion matrix, which Kubeflow shows.
    """

    pipeline: str
    graph: tuple[GraphNode, ...]
    config: Sequence[str]
    kubeflow: KubeflowConfig
    schedule: ScheduleConfig | None
    classifies: bool = False

    @property
    def rules(self) -> ScheduleConfig:
        """The schedule, or the defaults if the pipeline is not scheduled."""
        return self.schedule or BY_HAND


def check(config: Config) -> KubeflowConfig:
    """Check that the pipeline can run on Kubeflow, and return the section `kubeflow` of the config.

    Raises:
      InputError: The section is missing, or several machines cannot share the metadata store.
    """
    if config.kubeflow is None:
        raise InputError(
            "--kubeflow: expected a kubeflow section in the config, received none",
            "add image and claim, or --set kubeflow.image=… --set kubeflow.claim=…; see docs/how-to/kubeflow.md",
        )
    if config.metadata.backend == "sqlite":
        raise InputError(
            "--kubeflow: expected a metadata store on a server, received metadata.backend: sqlite, a file that only "
            "one machine may write to",
            "set metadata.backend to postgresql or mysql, with host, database and user",
        )
    return config.kubeflow


def list_warnings(config: Config, kubeflow: KubeflowConfig) -> Iterator[str]:
    """Yield warnings about requirements of the containers that cannot be checked from this machine."""
    paths = [path for _, path in config.data.places] + ([config.schema_.path] if config.schema_.path else [])
    image_paths = [path for path in paths if not is_remote(path) and not path.startswith(f"{kubeflow.mount}/")]
    if image_paths:
        yield f"{', '.join(image_paths)} must be in the image, because the path is not below {kubeflow.mount}"
    if config.push.approval == "required":
        yield (
            "push.approval: a run of Kubeflow Pipelines 2 cannot wait for a person, so it ends before the push; "
            "approve its model with `python runner.py models approve`"
        )
    variable = config.metadata.password_env
    if variable not in kubeflow.secrets:
        yield f"kubeflow.secrets does not set {variable}: the metadata store is opened without a password"


def write(job: Job, file: Path) -> None:
    """Write the two documents of a pipeline to a YAML file.

    Raises:
      InputError: The file cannot be written, or its name does not end in .yaml or .yml.
    """
    if file.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"--output: expected a file that ends in .yaml, received {file}",
            "rename the file: Kubeflow accepts only .yaml and .yml",
        )
    try:
        write_atomically(file, yaml.safe_dump_all(make_documents(job), sort_keys=False, width=120))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file with --output") from error


def make_documents(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two documents of the file: the spec of the pipeline, and the settings for Kubernetes."""
    containers = {
        _COMPILE: _make_compile_container(job),
        **{node.id: _make_node_container(job, node.id) for node in job.graph},
    }
    tasks = {
        _COMPILE: _make_task(_COMPILE, (), job.rules),
        **{
            _convert_name(node.id): _make_task(
                node.id,
                [_convert_name(name) for name in node.upstream] or [_COMPILE],
                job.rules,
                node.id == "ExampleGen",
            )
            for node in job.graph
        },
    }
    components: dict[str, Any] = {
        f"comp-{_convert_name(node_id)}": _make_component(node_id, job.classifies) for node_id in containers
    }
    if job.rules.only_if != "every":
        containers[_DUE] = _make_due_container(job)
        components[f"comp-{_DUE}"] = {
            "executorLabel": f"exec-{_DUE}",
            "outputDefinitions": {"parameters": {_DUE: {"parameterType": "STRING"}}},
        }
        components[f"comp-{_RUN}"] = {
            "dag": {"tasks": tasks},
            "inputDefinitions": {"parameters": {SPAN: {"parameterType": "STRING"}, _DUE: {"parameterType": "STRING"}}},
        }
        tasks = {_DUE: _make_task(_DUE, (), job.rules), _RUN: _make_run_task()}
    executors = {
        f"exec-{_convert_name(node_id)}": {"container": container} for node_id, container in containers.items()
    }
    spec = {
        "pipelineInfo": {"name": _convert_name(job.pipeline), "description": f"{job.pipeline}, node by node"},
        "schemaVersion": "2.1.0",
        "sdkVersion": "tfx-pipeline",
        "root": {
            "dag": {"tasks": tasks},
            "inputDefinitions": {
                "parameters": {
                    SPAN: {
                        "parameterType": "STRING",
                        "defaultValue": "today" if job.rules.span == "date" else "newest",
                        "description": "The newest span to read: a number, a day such as 2026-01-31, today, or newest.",
                        "isOptional": True,
                    }
                }
            },
        },
        "components": components,
        "deploymentSpec": {"executors": executors},
    }
    platform = {label: _make_kubernetes_settings(job) for label in executors}
    return spec, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": platform}}}}


def _convert_name(id_: str) -> str:
    """Convert the ID of a node or pipeline into a valid Kubernetes name, such as ExampleGen into example-gen."""
    dashed = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", id_)
    return re.sub(r"[^a-z0-9]+", "-", dashed.lower()).strip("-")


def _make_component(id_: str, classifies: bool) -> dict[str, Any]:
    span = {"inputDefinitions": {"parameters": {SPAN: {"parameterType": "STRING"}}}} if id_ == "ExampleGen" else {}
    artifacts = {
        name: {"artifactType": {"schemaTitle": type_, "schemaVersion": VERSION}}
        for name, type_ in list_artifacts(id_, classifies).items()
    }
    outputs = {"outputDefinitions": {"artifacts": artifacts}} if artifacts else {}
    return {"executorLabel": f"exec-{_convert_name(id_)}", **span, **outputs}


def _make_task(id_: str, upstream: Sequence[str], rules: ScheduleConfig, takes_span: bool = False) -> dict[str, Any]:
    """Return a task of the graph.

    The key of the task and the name in `taskInfo` must be equal, because Kubeflow finds the outputs of other tasks by
    both. Kubeflow's cache is off, because TFX decides in the container whether a node has to run.
    """
    inputs = {"inputs": {"parameters": {SPAN: {"componentInputParameter": SPAN}}}} if takes_span else {}
    retries = {
        "retryPolicy": {
            "maxRetryCount": rules.retries,
            "backoffDuration": f"{rules.retry_minutes * 60:g}s",
            "backoffFactor": 1.0,
        }
    }
    return {
        "taskInfo": {"name": _convert_name(id_)},
        "componentRef": {"name": f"comp-{_convert_name(id_)}"},
        **({"dependentTasks": list(upstream)} if upstream else {}),
        **inputs,
        "cachingOptions": {"enableCache": False},
        **(retries if rules.retries else {}),
    }


def _make_run_task() -> dict[str, Any]:
    output = {"taskOutputParameter": {"producerTask": _DUE, "outputParameterKey": _DUE}}
    return {
        "taskInfo": {"name": _RUN},
        "componentRef": {"name": f"comp-{_RUN}"},
        "dependentTasks": [_DUE],
        "inputs": {"parameters": {SPAN: {"componentInputParameter": SPAN}, _DUE: output}},
        "triggerPolicy": {"condition": f"inputs.parameter_values['{_DUE}'] == 'yes'"},
    }


def _make_due_container(job: Job) -> dict[str, Any]:
    file = f"{{{{$.outputs.parameters['{_DUE}'].output_file}}}}"
    return _make_container(job, _DUE, ["due", *_list_config_options(job), "--into", file])


def _make_compile_container(job: Job) -> dict[str, Any]:
    """Return the container that compiles the config, because only a container has the nodes' paths and versions."""
    arguments = ["node", "compile", *_list_config_options(job), "--into", _get_pipeline_path(job)]
    return _make_container(job, _COMPILE, arguments)


def _make_node_container(job: Job, id_: str) -> dict[str, Any]:
    arguments = ["node", "run", "--pipeline", _get_pipeline_path(job), "--node", id_, "--run-id", _RUN_ID]
    span = ["--span", f"{{{{$.inputs.parameters['{SPAN}']}}}}"] if id_ == "ExampleGen" else []
    described = ["--executor-input", _EXECUTOR_INPUT] if list_artifacts(id_, job.classifies) else []
    logs = ["--logs", f"{_get_output_folder(job)}/{job.pipeline}/logs"]
    return _make_container(job, id_, [*arguments, *span, *logs, *described])


def _list_config_options(job: Job) -> list[str]:
    return [*job.config, "--output", _get_output_folder(job)]


def _get_output_folder(job: Job) -> str:
    return f"{job.kubeflow.mount}/out"


def _get_pipeline_path(job: Job) -> str:
    return f"{_get_output_folder(job)}/{job.pipeline}/logs/{_RUN_ID}/pipeline.pb"


def _make_container(job: Job, id_: str, arguments: list[str]) -> dict[str, Any]:
    resources = _make_resources(job.kubeflow.resources, id_)
    environment = [{"name": name, "value": value} for name, value in job.kubeflow.environment.items()]
    return {
        "image": job.kubeflow.image,
        "command": ["python", "runner.py"],
        "args": arguments,
        **({"env": environment} if environment else {}),
        **({"resources": resources} if resources else {}),
    }


def _make_resources(resources: Mapping[str, Resources], id_: str) -> dict[str, Any]:
    requested = resources.get(id_) or resources.get(EVERY) or Resources()
    accelerator = {"type": _GPU, "count": str(requested.gpus)} if requested.gpus else None
    limits = {"cpuLimit": requested.cpu, "memoryLimit": requested.memory_gb, "accelerator": accelerator}
    return {name: value for name, value in limits.items() if value is not None}


def _make_kubernetes_settings(job: Job) -> dict[str, Any]:
    """Return volume, secrets, node selector, labels, user and deadline of a container."""
    kubeflow = job.kubeflow
    secrets = [
        {"secretName": source.secret, "keyToEnv": [{"secretKey": source.key, "envVar": variable}]}
        for variable, source in kubeflow.secrets.items()
    ]
    security = {"runAsUser": str(kubeflow.user), "runAsNonRoot": True} if kubeflow.user is not None else {}
    return {
        "pvcMount": [{"constant": kubeflow.claim, "mountPath": kubeflow.mount}],
        **({"secretAsEnv": secrets} if secrets else {}),
        **({"nodeSelector": {"labels": dict(kubeflow.node_selector)}} if kubeflow.node_selector else {}),
        **({"podMetadata": {"labels": dict(kubeflow.labels)}} if kubeflow.labels else {}),
        **({"securityContext": security} if security else {}),
        # The JSON format of protobuf writes 64-bit integers as strings.
        "activeDeadlineSeconds": str(round(job.rules.timeout_hours * 3600)),
    }


PYTHON = "KFP_PYTHON"
"""Environment variable that contains the path of a Python interpreter with kfp."""
_ROOT = Path(__file__).parents[2]
_OWN = _ROOT / ".cache" / "kubeflow" / "bin" / "python"
_SUBMIT = _ROOT / "deploy" / "kubeflow" / "submit.py"


def submit(config: Config, kubeflow: KubeflowConfig, file: Path) -> str:
    """Start a run or, if the config has a schedule, create a recurring run that replaces an earlier one.

    Args:
      config: Config of the pipeline.
      kubeflow: Section `kubeflow` of the config.
      file: Pipeline file that `kubeflow.write` has written.

    Returns:
      A description of the result.

    Raises:
      InputError: kubeflow.host is not set.
      MachineError: kfp is not installed, or Kubeflow refuses the pipeline or does not answer.
    """
    if kubeflow.host is None:
        raise InputError(
            "--submit: expected kubeflow.host, received none", "set it to the address of Kubeflow's API, with https://"
        )
    schedule = _make_schedule(config.schedule) if config.schedule else None
    request = {
        "file": str(file.absolute()),
        "name": config.pipeline.name,
        "host": kubeflow.host,
        "namespace": kubeflow.namespace,
        "experiment": kubeflow.experiment,
        "service_account": kubeflow.service_account,
        "schedule": schedule,
    }
    client = subprocess.run(
        [_find_python(), str(_SUBMIT)], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if client.returncode:
        why = next((line for line in reversed(client.stderr.splitlines()) if line.strip()), "no error message")
        raise MachineError(
            f"Kubeflow at {kubeflow.host} has not accepted the pipeline: {why}",
            f"fix the error and submit again, or upload {file} in Kubeflow's UI",
        )
    reply = json.loads(client.stdout.splitlines()[-1])
    if schedule is None:
        return f"run {reply['run']} has been started at {kubeflow.host}"
    replaced = ", which replaces the earlier one" if reply["replaced"] else ""
    return f"recurring run {reply['recurring_run']} at {kubeflow.host}{replaced}: {schedule['cron']}"


def _make_schedule(schedule: ScheduleConfig) -> dict[str, Any]:
    """Return the schedule in Kubeflow's format.

    Cron expressions begin with seconds, and Kubeflow fills in the day for which a run is scheduled.
    """
    return {
        "cron": f"0 {schedule.cron}",
        "start": f"{schedule.start.isoformat()}T00:00:00Z",
        "catch_up": schedule.catch_up,
        "parameters": {SPAN: "[[ScheduledTime.2006-01-02]]"} if schedule.span == "date" else {},
    }


def _find_python() -> str:
    if python := os.environ.get(PYTHON):
        return python
    # Look for kfp.client: TFX's dependencies for Vertex AI install a part of kfp that does not contain the client.
    if importlib.util.find_spec("kfp") and importlib.util.find_spec("kfp.client"):
        return sys.executable
    if _OWN.exists():
        return str(_OWN)
    raise MachineError(
        "--submit: kfp, Kubeflow's client, is not installed",
        f"run tools/environment.sh kubeflow, which installs it, or set {PYTHON} to a Python that has it",
    )
